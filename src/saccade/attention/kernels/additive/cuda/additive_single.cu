// One query against its keys: what a recurrent decoder asks at every step. Bound by memory: a block for each (or several,
// which share keys and values) reads every key and value once.
//
// Here an exponential serves one pair only, so it is taken of the sum: w = 1 / (1 + 2^z), z = 2 log2(e) (q + k). With z
// cut at 30, where w < 2^-30, four denominators multiply to at most 2^120 and share a reciprocal.

#define MANY_THREADS 512  // of a block: many loads are on their way at once
#define AHEAD 8           // values a thread fetches before it knows their weights
#define SUMMED 8          // parts of the query that are read at once
#define KEYS 8            // that a thread has at a time
#define PIECE (int)(16 / sizeof(input_t))  // numbers that are copied at a time

DEVICE float denominator(float q, float k) { return denominator(q, k, CUT_BY_FOUR); }

// Four numbers of a row, zeros behind its end; `whole`: rows are whole groups of four, and lie where 16 bytes can be read
DEVICE float4 four(const input_t* row, int d, int width, bool whole) {
#if INPUT == 0
    if (whole) return *(const float4*)(row + d);
#else
    if (whole) {
        uint64 bits = *(const uint64*)(row + d);
        return {widen((uint16)bits), widen((uint16)(bits >> 16)), widen((uint16)(bits >> 32)), widen((uint16)(bits >> 48))};
    }
#endif
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = d + i < width ? widen(row[d + i]) : 0.0f;
    return {x[0], x[1], x[2], x[3]};
}
DEVICE bool is_whole(const void* row, int width) { return width % 4 == 0 && (uint64)row % 16 == 0; }

DEVICE void copy_four_later(input_t* to, const input_t* from) {
#if INPUT == 0
    copy_later(to, from);
#else
    copy_eight_later((float*)to, from);
#endif
}

// v·tanh(q + k) of four dimensions, from -2 v and the sum of v
DEVICE float score_of(const float4& q, const float4& k, const float4& v, float sum) {
    float x = denominator(q.x, k.x), y = denominator(q.y, k.y), z = denominator(q.z, k.z), w = denominator(q.w, k.w);
    float xy = x * y, zw = z * w, above = fmaf(fmaf(v.x, y, v.y * x), zw, fmaf(v.z, w, v.w * z) * xy);
    return fmaf(above, reciprocal(xy * zw), sum);
}

struct Step {
    const void* query;                   // [N, A], or float32 [parts, N, A], to be summed
    const input_t *key, *value;          // [N, S, A], [N, S, D]
    const void* v;                       // [N or 1, A]
    const long long* length;             // [N]: keys from there on don't exist; null: all do
    input_t* output;                     // [N, D]
    float* weight;                       // [N, S], before dropout; may be null
    int num_keys, width, value_width, v_stride, v_is_wide, parts;  // parts 0: the query is one, of the inputs' type
    int joined;                          // an entry's blocks (up to four) are a cluster: each scores some keys, and tells the others
    int span;                            // threads, in whole warps, that share a key: each has four dimensions at a time
    Allowed allowed;
    Drawing drawing;
};

// Four dimensions of the query; zeros behind its end
DEVICE float4 query_of(const Step& a, int d) {
    if (!a.parts)
        return four((const input_t*)a.query + (long long)blockIdx.x * a.width, d, a.width, is_whole(a.query, a.width));
    int stride = gridDim.x * a.width;  // few rows
    const float* from = (const float*)a.query + blockIdx.x * a.width + d;
    float4 sum = {0, 0, 0, 0};
    if (a.width % 4 == 0) {
#pragma unroll 1
        for (int first = 0; first < a.parts; first += SUMMED) {
            float4 part[SUMMED];
#pragma unroll
            for (int i = 0; i < SUMMED; i++, from += stride) {
                part[i] = {0, 0, 0, 0};
                if (first + i < a.parts) part[i] = *(const float4*)from;
            }
#pragma unroll
            for (int i = 0; i < SUMMED; i++)
                sum = {sum.x + part[i].x, sum.y + part[i].y, sum.z + part[i].z, sum.w + part[i].w};
        }
    } else {
#pragma unroll 1
        for (int part = 0; part < a.parts; part++, from += stride)
            sum = {
                sum.x + from[0], sum.y + (d + 1 < a.width ? from[1] : 0), sum.z + (d + 2 < a.width ? from[2] : 0),
                sum.w + (d + 3 < a.width ? from[3] : 0)};
    }
    return sum;
}

DEVICE float4 v_of(const Step& a, int d) {
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        long long at = (long long)blockIdx.x * a.v_stride + d + i;
        x[i] = d + i >= a.width ? 0.0f : a.v_is_wide ? ((const float*)a.v)[at] : widen(((const input_t*)a.v)[at]);
    }
    return {x[0], x[1], x[2], x[3]};
}

// KEYS sums over the lanes of a warp; a lane has that of key `lane / 4`
DEVICE float sum_of_key(float (&x)[KEYS]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 16, left = KEYS / 2; left; step /= 2, left /= 2)
#pragma unroll
        for (int i = 0; i < left; i++) {
            bool upper = lane & step;
            float kept = upper ? x[left + i] : x[i], given = upper ? x[i] : x[left + i];
            x[i] = kept + shuffle_xor(given, step);
        }
    float sum = x[0] + shuffle_xor(x[0], 2);
    return sum + shuffle_xor(sum, 1);
}

// Shared memory: query and v (padded to fours), sums of values, parts of the scores [warps of a span, keys], weights, keys.
// grid: (N, blocks that share keys and values). Keys and values are on their way before the query is there; of keys, query
// and v every thread reads only what it wrote, or others wrote alike. HOLDS: a block's keys fit shared memory, and keys and
// values come in whole fours.
template <bool HOLDS>
DEVICE void take_step(const Step& a) {
    SHARED(q);
    if (a.joined) cluster_begin();
    int padded = (a.width + 3) / 4 * 4, n = blockIdx.x, lane = threadIdx.x % 32, pieces = a.span / 32;
    float *of_v = q + padded, *sums = of_v + padded, *score = sums + 4 * MANY_THREADS, *share = score + pieces * a.num_keys;
    input_t* held = (input_t*)(score + ((pieces + 1) * a.num_keys + 3) / 4 * 4);
    int num_keys = a.length ? (int)max(0ll, min(a.length[n], (long long)a.num_keys)) : a.num_keys;
    int most_keys = a.joined ? (num_keys + gridDim.y - 1) / gridDim.y : num_keys;
    int first_key = a.joined ? min(most_keys * (int)blockIdx.y, num_keys) : 0, last_key = min(first_key + most_keys, num_keys);
    const input_t* key = a.key + ((long long)n * a.num_keys + first_key) * a.width;
    int teams = MANY_THREADS / a.span, team = threadIdx.x / a.span, place = threadIdx.x % a.span * 4;
    if (HOLDS && team < teams)
        for (int s = team; s < last_key - first_key; s += teams)
            for (int d = place; d < a.width; d += 4 * a.span)
                copy_four_later(held + s * a.width + d, key + (long long)s * a.width + d);
#pragma unroll 1
    for (int d = place; d < a.width; d += 4 * a.span) {
        const float* v = (const float*)a.v + (long long)n * a.v_stride;
        if (INPUT == 0 && is_whole(a.v, a.width)) copy_later(of_v + d, v + d);
        else *(float4*)(of_v + d) = v_of(a, d);
    }
    bool whole_values = HOLDS || is_whole(a.value, a.value_width);

    int all_quads = (a.value_width + 3) / 4, most = (all_quads + gridDim.y - 1) / gridDim.y, before = blockIdx.y * most;
    int quads = min(most, all_quads - before), columns = min(quads, MANY_THREADS), groups = MANY_THREADS / columns;
    int column = threadIdx.x % columns, group = threadIdx.x / columns, value_width = a.value_width - 4 * before;
    const input_t* value = a.value + (long long)n * a.num_keys * a.value_width + 4 * before;
    float4 ahead[AHEAD];
    auto fetch = [&](bool whole) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int s = group + i * groups;
            ahead[i] = {0, 0, 0, 0};
            if (group < groups && s < num_keys)
                ahead[i] = four(value + (long long)s * a.value_width, 4 * column, value_width, whole);
        }
    };
    if (whole_values) fetch(true);
    else fetch(false);
    wait_for_before();
#pragma unroll 1
    for (int d = place; d < a.width; d += 4 * a.span) *(float4*)(q + d) = query_of(a, d);
    copies_done();
    if (a.joined) cluster_wait();
    auto find_scores = [&](const input_t* keys, bool whole) {
#pragma unroll 1
        for (int base = first_key + team; base < last_key; base += KEYS * teams) {
            float sum[KEYS] = {};
#pragma unroll 1
            for (int d = place; d < a.width; d += 4 * a.span) {
                float4 of_q = *(const float4*)(q + d), to = *(const float4*)(of_v + d);
                float all = (to.x + to.y) + (to.z + to.w);
                to = {-2 * to.x, -2 * to.y, -2 * to.z, -2 * to.w};
#pragma unroll
                for (int i = 0; i < KEYS; i += 2) {  // two at a time
                    int s = base + i * teams;
                    if (s >= last_key) continue;
                    const input_t *one = keys + (long long)(s - first_key) * a.width, *other = one;
                    if (s + teams < last_key) other += (long long)teams * a.width;
                    float4 k = four(one, d, a.width, whole), k_too = four(other, d, a.width, whole);
                    sum[i] += score_of(of_q, k, to, all), sum[i + 1] += score_of(of_q, k_too, to, all);
                }
            }
            float x = sum_of_key(sum);
            int s = base + lane / 4 * teams, rank = lane % 4;
            float* there = score + place / 128 * a.num_keys + s;
            if (s < last_key && a.joined && rank < gridDim.y) write_to_rank(rank, there, x);
            if (s < last_key && !a.joined && rank == 0) *there = x;
        }
    };
    if (team >= teams) first_key = last_key;  // those left over
    if (HOLDS) find_scores(held, true);
    else find_scores(key, is_whole(a.key, a.width));
    if (a.joined) cluster_arrive(), cluster_wait();
    else block_barrier();

    auto found = [&](int s) {
        if (s >= num_keys || !a.allowed(n, 0, s)) return -INFINITE;
        float x = 0;
#pragma unroll 4
        for (int piece = 0; piece < pieces; piece++) x += score[piece * a.num_keys + s];
        return x;
    };
    float mine = found(lane), best = mine, total;
    for (int s = lane + 32; s < num_keys; s += 32) best = fmaxf(best, found(s));
    best = warp_max(best);
    best = best == -INFINITE ? 0.0f : best;
    total = expf(mine - best);
    for (int s = lane + 32; s < num_keys; s += 32) total += expf(found(s) - best);
    total = warp_sum(total);
    float factor = total == 0 ? 0.0f : 1 / total;
    for (int s = threadIdx.x; s < a.num_keys; s += MANY_THREADS) {
        float one = expf((s < 32 ? mine : found(s)) - best) * factor;
        if (a.weight && blockIdx.y == 0) a.weight[(long long)n * a.num_keys + s] = one;
        share[s] = one * a.drawing(n, 0, s);
    }
    block_barrier();
    for (int first = 0; first < quads; first += columns) {
        float4 sum = {0, 0, 0, 0};
        auto add = [&](int s, const float4& x) {
            float w = share[s];  // what has no weight may be anything
            if (w != 0) sum = {fmaf(w, x.x, sum.x), fmaf(w, x.y, sum.y), fmaf(w, x.z, sum.z), fmaf(w, x.w, sum.w)};
        };
        bool is_mine = group < groups && first + column < quads;
        if (is_mine) {
            int s = group;
            if (first == 0) {
#pragma unroll
                for (int i = 0; i < AHEAD; i++, s += groups)
                    if (s < num_keys) add(s, ahead[i]);
            }
#pragma unroll 4
            for (; s < num_keys; s += groups)
                add(s, four(value + (long long)s * a.value_width, 4 * (first + column), value_width, whole_values));
        }
        *(float4*)(sums + 4 * threadIdx.x) = sum;
        block_barrier();
        if (is_mine && group == 0) {
            for (int i = 1; i < groups; i++) {
                float4 x = *(const float4*)(sums + 4 * (threadIdx.x + i * columns));
                sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
            }
            float x[4] = {sum.x, sum.y, sum.z, sum.w};
            for (int i = 0, d = 4 * (first + column); i < 4 && d + i < value_width; i++)
                a.output[(long long)n * a.value_width + 4 * before + d + i] = narrow(x[i]);
        }
        block_barrier();
    }
}

KERNEL(MANY_THREADS, 1) step(Step a) { take_step<false>(a); }

// Few entries: it has as many registers as leave room for a block of `project`, which runs beside it
KERNEL(MANY_THREADS + 256, 1) step_beside(Step a) { take_step<true>(a); }
