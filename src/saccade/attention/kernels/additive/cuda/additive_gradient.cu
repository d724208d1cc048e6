// From the gradient g of the scores to those of queries, keys and v. With w = 1 / (1 + E F):
//
//     tanh = ±(1 - 2 w), tanh' = 4 (w - w²):   dq_td = 4 v_d sum_s g_ts (w - w²),   dv_d = ±(sum g - 2 sum g w)
//
// and dk_sd is dq's sum over t: each fraction is computed once for all three. A block owns TILE_S keys and 64
// dimensions, a warp 16 of these keys, a lane two dimensions; it walks over queries, TILE_T at a time. Sums of
// keys stay in registers, those of queries are gathered from all warps. What several blocks sum is written in parts that
// add_parts adds: no two threads write one place, and the order of sums is fixed.
// Two fractions share a reciprocal, 1/x = y r, 1/y = x r, r = 1 / (x y), but for a quarter: the slow unit has time.

#define LANE_KEYS 16
#define THREADS (32 * WARPS)
#define TILE_T (2 * WARPS)  // a thread brings four numbers of them
#define TILE_S (WARPS * LANE_KEYS)
#define SLICE 64
#define STRETCH 256  // queries that a running sum of keys goes over: longer ones are rounded more
#define E_SIZE (TILE_T * SLICE)
#define G_SIZE (TILE_T * TILE_S)
#define SUMS_SIZE (WARPS * TILE_T * SLICE)

// Where a gradient goes: to `parts` [parts, N, rows, padded], if there are some, else to its place [N, rows, width]
struct Target {
    float* parts;
    void* to;
    int wide, add;  // float32, whatever the inputs are; add to what is there

    DEVICE bool takes_pieces() const { return parts || wide; }  // sums may come one after the other
    DEVICE void put(long long at, float x) const {
        if (wide) ((float*)to)[at] = (add ? ((float*)to)[at] : 0.0f) + x;
        else ((input_t*)to)[at] = narrow(x);
    }
    DEVICE void put_four(long long at, const float (&x)[4], int count, bool aligned) const {
        if (aligned && !add && wide) *(float4*)((float*)to + at) = {x[0], x[1], x[2], x[3]};
        else if (aligned && !add) *(Four*)((input_t*)to + at) = {narrow(x[0]), narrow(x[1]), narrow(x[2]), narrow(x[3])};
        else
            for (int i = 0; i < min(count, 4); i++) put(at + i, x[i]);
    }
};

// One tile: `own` and `e` are exponentials or, if EXACT, arguments; `sums` [TILE_T, SLICE] is the warp's own
template <bool EXACT>
DEVICE void add_tile(
    float2 (&sum)[LANE_KEYS], float2& of_v, const float2 (&own)[LANE_KEYS], const float* e, const float* g, float* sums
) {
#pragma unroll 2
    for (int t = 0; t < TILE_T; t++) {
        float2 f = *(const float2*)(e + t * SLICE), of_query = {0, 0}, with_v = {0, 0};  // short sums are rounded least
#pragma unroll
        for (int i = 0; i < LANE_KEYS; i += 4) {
            float4 four = *(const float4*)(g + t * TILE_S + i);
            float each[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float2 key = own[i + j], &of_key = sum[i + j];
                float x = EXACT ? denominator(key.x, f.x, CUT_BY_TWO) : fmaf(key.x, f.x, 1);
                float y = EXACT ? denominator(key.y, f.y, CUT_BY_TWO) : fmaf(key.y, f.y, 1);
                float r = j == 3 ? 0.0f : reciprocal(x * y);
                float v = j == 3 ? reciprocal(x) : y * r, w = j == 3 ? reciprocal(y) : x * r;
                with_v.x = fmaf(each[j], v, with_v.x), with_v.y = fmaf(each[j], w, with_v.y);
                v = fmaf(-v, v, v), w = fmaf(-w, w, w);
                of_query.x = fmaf(each[j], v, of_query.x), of_query.y = fmaf(each[j], w, of_query.y);
                of_key.x = fmaf(each[j], v, of_key.x), of_key.y = fmaf(each[j], w, of_key.y);
            }
        }
        *(float2*)(sums + t * SLICE) = of_query;
        of_v.x += with_v.x, of_v.y += with_v.y;
    }
}

// What a thread brings for everybody: four dimensions of one query, and its share of g
struct Fetcher {
    const input_t* query;
    const float* g;
    int row, column, there, num_queries, num_keys, width;
    bool aligned, g_aligned;
    float sign[4], x[4];

    DEVICE Fetcher(const input_t* query, const float* v, const float* g, int d0, int s0, int num_queries, int num_keys, int width)
        : query(query), g(g + s0), num_queries(num_queries), num_keys(num_keys), width(width) {
        row = threadIdx.x / (SLICE / 4), column = threadIdx.x % (SLICE / 4) * 4, there = num_keys - s0;
        aligned = width % 4 == 0 && (uint64)query % sizeof(Four) == 0;
        g_aligned = num_keys % 4 == 0 && (uint64)g % 16 == 0;
        this->query += d0 + column;
#pragma unroll
        for (int i = 0; i < 4; i++) sign[i] = d0 + column + i < width ? turn(v[d0 + column + i], d0 + column + i) : 1.0f;
    }
    DEVICE void read(float* to, int t0, int columns) {
        load_four(x, query + (long long)min(t0 + row, num_queries - 1) * width, columns - column, aligned);
#pragma unroll
        for (int i = 0; i < G_SIZE; i += 4 * THREADS) {
            int at = i + threadIdx.x * 4;
            if (at >= G_SIZE) continue;
            int t = t0 + at / TILE_S, s = at % TILE_S;
            const float* from = g + (long long)t * num_keys + s;
            int count = t < num_queries ? there - s : 0;
            if (g_aligned && count > 0) copy_later(to + at, from);
            else
#pragma unroll
                for (int j = 0; j < 4; j++) to[at + j] = j < count ? from[j] : 0.0f;
        }
    }
    DEVICE void write_arguments(float* to) const {
        *(float4*)(to + row * SLICE + column) = {x[0] * sign[0], x[1] * sign[1], x[2] * sign[2], x[3] * sign[3]};
    }
    // Exponentials, and whether denominators of two may exceed what `limit` leaves, or are none
    DEVICE bool write(float* to, float limit) const {
        float4 y = {expf(2 * x[0] * sign[0]), expf(2 * x[1] * sign[1]), expf(2 * x[2] * sign[2]), expf(2 * x[3] * sign[3])};
        *(float4*)(to + row * SLICE + column) = y;
        return !((1 + y.x) * (1 + y.y) <= limit && (1 + y.z) * (1 + y.w) <= limit);
    }
};

// grid: (slices of the width, key tiles of each part of the queries, N); a part has `chunk` queries, in whole tiles.
// g [N, queries, keys]; of_v [gridDim.y, N, width].
KERNEL(THREADS, 512 / THREADS) gradients(
    const input_t* query, const input_t* key, const float* v, const float* g, Target of_query, Target of_key, float* of_v,
    int num_queries, int num_keys, int width, int padded, int chunk
) {
    SHARED(shared);
    float *es = shared, *gs = es + 2 * E_SIZE, *all_sums = gs + 2 * G_SIZE;
    int n = blockIdx.z, lane = threadIdx.x % 32, warp = threadIdx.x / 32, d0 = blockIdx.x * SLICE, d = d0 + 2 * lane;
    int tiles = (num_keys + TILE_S - 1) / TILE_S, tile = blockIdx.y % tiles, part = blockIdx.y / tiles;
    int s0 = tile * TILE_S, s = s0 + warp * LANE_KEYS, first = part * chunk, last = min(first + chunk, num_queries);
    int warps = (min(num_keys - s0, TILE_S) + LANE_KEYS - 1) / LANE_KEYS;  // those that have keys
    v += (long long)n * width, key += (long long)n * num_keys * width;
    float2 sign = {d < width ? turn(v[d], d) : 1.0f, d + 1 < width ? turn(v[d + 1], d + 1) : 1.0f};

    float2 own[LANE_KEYS], sum[LANE_KEYS] = {}, with_v = {0, 0};
    auto load_own = [&](bool exact) {
#pragma unroll
        for (int i = 0; i < LANE_KEYS; i++) {
            const input_t* from = key + (long long)min(s + i, num_keys - 1) * width + d;
            own[i] = {d < width ? widen(from[0]) * sign.x : 0.0f, d + 1 < width ? widen(from[1]) * sign.y : 0.0f};
            if (!exact) own[i] = {expf(2 * own[i].x), expf(2 * own[i].y)};
        }
    };
    float largest = 1;
    load_own(false);
#pragma unroll
    for (int i = 0; i < LANE_KEYS; i++) largest = fmaxf(largest, or_infinite((1 + own[i].x) * (1 + own[i].y)));
    float limit = 0x1p120f / block_max(largest, shared);  // (1 + E F) (1 + E' F') <= (1 + E) (1 + E') (1 + F) (1 + F')

    long long rows = (long long)n * num_queries;
    Fetcher fetch(query + rows * width, v, g + rows * num_keys, d0, s0, num_queries, num_keys, width);
    auto gather = [&](const float* sums, int t0) {
        int t = t0 + fetch.row, at = d0 + fetch.column;
        if (t >= last || at >= padded) return;
        float4 total = {0, 0, 0, 0};
        for (int i = 0; i < warps; i++) {
            float4 more = *(const float4*)(sums + (i * TILE_T + fetch.row) * SLICE + fetch.column);
            total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
        }
        if (of_query.parts) {
            *(float4*)(of_query.parts + (((long long)tile * gridDim.z + n) * num_queries + t) * padded + at) = total;
            return;
        }
        float x[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] *= at + i < width ? 4 * v[at + i] : 0.0f;
        of_query.put_four((rows + t) * width + at, x, width - at, width % 4 == 0);
    };

    auto put_keys = [&](bool again) {
        int mine = unknown(s);
        bool whole = !of_key.parts, grows = again || (whole && of_key.add);
        int stride = whole ? width : padded;
        long long at = ((long long)(whole ? n : part * gridDim.z + n) * num_keys + mine) * stride + d;
        float* to = whole ? (float*)of_key.to : of_key.parts;
        float2 factor = {whole && d < width ? 4 * v[d] : 1.0f, whole && d + 1 < width ? 4 * v[d + 1] : 1.0f};
#pragma unroll
        for (int i = 0; i < LANE_KEYS; i++, at += stride) {
            if (mine + i >= num_keys || d >= stride) continue;
            float x = factor.x * sum[i].x, y = factor.y * sum[i].y;
            if (!of_key.takes_pieces()) ((input_t*)to)[at] = narrow(x);
            else if (grows) add_to(to + at, x);
            else to[at] = x;
            if (d + 1 >= stride) continue;
            if (!of_key.takes_pieces()) ((input_t*)to)[at + 1] = narrow(y);
            else if (grows) add_to(to + at + 1, y);
            else to[at + 1] = y;
        }
    };

    bool holds_arguments = false, again = false;
    int stage = 0;
    fetch.read(gs, first, width - d0);
    for (int t0 = first; t0 < last; t0 += TILE_T, stage ^= 1) {
        float *e = es + stage * E_SIZE, *of_g = gs + stage * G_SIZE, *sums = all_sums + stage * SUMS_SIZE;
        bool too_large = fetch.write(e, limit);
        copies_done();
        bool exact = block_any(too_large);  // a barrier: this stage is written, and the other one is read
        if (exact) {
            fetch.write_arguments(e);
            block_barrier();
        }
        if (t0 + TILE_T < last) fetch.read(gs + (stage ^ 1) * G_SIZE, t0 + TILE_T, width - d0);
        if (t0 > first) gather(all_sums + (stage ^ 1) * SUMS_SIZE, t0 - TILE_T);
        if (exact != holds_arguments) load_own(exact), holds_arguments = exact;
        if (warp >= warps) continue;
        const float *others = e + 2 * lane, *weights = of_g + warp * LANE_KEYS;
        float g_sum = 0;
#pragma unroll
        for (int i = 0; i < TILE_T * LANE_KEYS; i += 128) {
            int at = i + 4 * lane;
            if (at >= TILE_T * LANE_KEYS) continue;
            float4 four = *(const float4*)(weights + at / LANE_KEYS * TILE_S + at % LANE_KEYS);
            g_sum += (four.x + four.y) + (four.z + four.w);
        }
        g_sum = warp_sum(g_sum);
        float2 of_tile = {0, 0};
        float* to = sums + warp * TILE_T * SLICE + 2 * lane;
        if (exact) add_tile<true>(sum, of_tile, own, others, weights, to);
        else add_tile<false>(sum, of_tile, own, others, weights, to);
        with_v.x += g_sum - 2 * of_tile.x, with_v.y += g_sum - 2 * of_tile.y;  // g tanh: a sum of either sign, and small
        bool pauses = of_key.takes_pieces() && (t0 - first) % STRETCH == STRETCH - TILE_T;
        if (!pauses && t0 + TILE_T < last) continue;
        put_keys(again), again = true;
#pragma unroll
        for (int i = 0; i < LANE_KEYS; i++) sum[i] = {0, 0};
    }
    block_barrier();
    gather(all_sums + (stage ^ 1) * SUMS_SIZE, (last - 1 - first) / TILE_T * TILE_T + first);

    float* totals = gs;
    totals[warp * SLICE + 2 * lane] = with_v.x, totals[warp * SLICE + 2 * lane + 1] = with_v.y;
    block_barrier();
    for (int i = threadIdx.x; i < SLICE && d0 + i < width; i += THREADS) {
        float total = 0;
        for (int other = 0; other < warps; other++) total += totals[other * SLICE + i];
        of_v[((long long)blockIdx.y * gridDim.z + n) * width + d0 + i] = turn(v[d0 + i], d0 + i) * total;
    }
}

// Parts [count, N, rows, padded] to their place, times 4 v
DEVICE void add_side(const Target& target, int count, const float* v, int entries, int rows, int width, int padded) {
    int groups = padded / 4;
    long long all = (long long)entries * rows * groups;
    if (!target.parts) return;
    for (long long i = blockIdx.x * 256 + threadIdx.x; i < all; i += gridDim.x * 256) {
        int d = i % groups * 4, n = i / ((long long)rows * groups);
        float4 total = {0, 0, 0, 0};
#pragma unroll 4
        for (int part = 0; part < count; part++) {
            float4 more = *(const float4*)(target.parts + (part * all + i) * 4);
            total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
        }
        float x[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] *= d + j < width ? 4 * v[(long long)n * width + d + j] : 0.0f;
        target.put_four(i / groups * width + d, x, width - d, width % 4 == 0);
    }
}

// grid: (blocks, 3: queries, keys and v). `of_query` comes in key tiles, `of_key` in parts of the queries, v in both.
KERNEL(256, 4) add_parts(
    Target of_query, Target of_key, const float* parts_of_v, float* of_v, const float* v, int entries, int num_queries,
    int num_keys, int width, int padded, int tiles, int parts
) {
    if (blockIdx.y == 0) add_side(of_query, tiles, v, entries, num_queries, width, padded);
    else if (blockIdx.y == 1) add_side(of_key, parts, v, entries, num_keys, width, padded);
    else
        for (int i = blockIdx.x * 256 + threadIdx.x; i < entries * width; i += gridDim.x * 256) {
            float total = 0;
            for (int part = 0; part < tiles * parts; part++) total += parts_of_v[(long long)part * entries * width + i];
            of_v[i] = total;
        }
}
