// From the gradient g of the scores to those of queries, keys and v. With w = 1 / (1 + E F):
//
//     tanh = ±(1 - 2 w), tanh' = 4 (w - w²):   dq_td = 4 v_d sum_s g_ts (w - w²),   dv_d = ±(sum g - 2 sum g w)
//
// Queries and keys change roles, so one kernel serves both: a block owns ROWS rows of one side and 64 dimensions, a
// lane two of these, and walks over the other side. No two threads write one place: the order of sums is fixed.
// Two fractions share a reciprocal: 1/x = y r, 1/y = x r, r = 1 / (x y).

#define LANE_ROWS 8
#define WARPS (ROWS / LANE_ROWS)
#define SLICE 64
#define OTHER_SIZE (ROWS * SLICE)
#define G_STRIDE (ROWS + 4)
#define G_SIZE (ROWS * G_STRIDE)

struct Side {
    const input_t* arguments;  // [N, steps, width]
    const float* exponentials;  // [N, steps, padded]
    const float* bound;         // [N, blocks, 2]
    int steps;
    long long stride;  // of g along this side
};

template <bool SAFE, bool OF_V>
DEVICE void add_rows(
    float2 (&sum)[LANE_ROWS], float2& of_v, const float2 (&own)[LANE_ROWS], const float* other, const float* g, float2 sign
) {
#pragma unroll 2
    for (int row = 0; row < ROWS; row++) {
        float2 f = *(const float2*)(other + row * SLICE);
        float4 g0 = *(const float4*)(g + row * G_STRIDE), g1 = *(const float4*)(g + row * G_STRIDE + 4);
        float each[LANE_ROWS] = {g0.x, g0.y, g0.z, g0.w, g1.x, g1.y, g1.z, g1.w};
#pragma unroll
        for (int i = 0; i < LANE_ROWS; i++) {
            float x = SAFE ? fmaf(own[i].x, f.x, 1) : denominator(own[i].x * sign.x, f.x * sign.x, CUT_BY_TWO);
            float y = SAFE ? fmaf(own[i].y, f.y, 1) : denominator(own[i].y * sign.y, f.y * sign.y, CUT_BY_TWO);
            float r = reciprocal(x * y), v = y * r, w = x * r;
            if (OF_V) of_v.x = fmaf(each[i], v, of_v.x), of_v.y = fmaf(each[i], w, of_v.y);
            sum[i].x = fmaf(each[i], fmaf(-v, v, v), sum[i].x), sum[i].y = fmaf(each[i], fmaf(-w, w, w), sum[i].y);
        }
    }
}

// Fetches what comes next: g into registers (it is turned on its way to shared memory), the other side by copies
struct Fetcher {
    const Side& other;
    const float* g;
    int x, y, last_x, across, n, d0, width, padded;  // across: neighbours in g lie along the other side
    long long step;

    DEVICE Fetcher(const Side& own, const Side& other, const float* g, int n, int x0, int d0, int width, int padded)
        : other(other), n(n), d0(d0), width(width), padded(padded) {
        across = other.stride == 1;
        x = across ? threadIdx.x / ROWS : threadIdx.x % ROWS, y = across ? threadIdx.x % ROWS : threadIdx.x / ROWS;
        last_x = own.steps - 1 - x0;
        this->g = g + (long long)n * own.steps * other.steps + (x0 + x) * own.stride + y * other.stride;
        step = (across ? own.stride : other.stride) * (128 / ROWS);
    }
    DEVICE void read(float (&next)[8], float* to, int y0, bool safe) const {
        const float* from = g + y0 * other.stride;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            bool there = x + (across ? 4 * i : 0) <= last_x && y0 + y + (across ? 0 : 4 * i) < other.steps;
            next[i] = there ? from[i * step] : 0.0f;
        }
        int column = threadIdx.x % (SLICE / 4) * 4, row = threadIdx.x / (SLICE / 4);
        if (d0 + column >= padded) return;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            long long at = (long long)n * other.steps + min(y0 + row + 8 * i, other.steps - 1);
            float* place = to + (row + 8 * i) * SLICE + column;
            if (safe) copy_later(place, other.exponentials + at * padded + d0 + column);
            for (int j = 0; j < 4 && !safe; j++)
                place[j] = d0 + column + j < width ? widen(other.arguments[at * width + d0 + column + j]) : 0.0f;
        }
    }
    DEVICE void write(const float (&next)[8], float* to) const {
#pragma unroll
        for (int i = 0; i < 8; i++) to[(y + (across ? 0 : 4 * i)) * G_STRIDE + x + (across ? 4 * i : 0)] = next[i];
    }
};

// grid: (slices of the width, row blocks, N). gradient [N, steps, width] float32; `of_v` [N, row blocks, width] or null.
template <bool OF_V>
DEVICE void walk(Side own, Side other, const float* v, const float* g, float* gradient, float* of_v, int width, int padded, int add) {
    SHARED(shared);
    float *others = shared, *gs = shared + 2 * OTHER_SIZE;
    int n = blockIdx.z, lane = threadIdx.x % 32, warp = threadIdx.x / 32, x0 = blockIdx.y * ROWS, d0 = blockIdx.x * SLICE;
    int d = d0 + 2 * lane, own_blocks = gridDim.y, x = x0 + warp * LANE_ROWS;
    v += (long long)n * width;
    float2 sign = {d < width ? turn(v[d], d) : 1.0f, d + 1 < width ? turn(v[d + 1], d + 1) : 1.0f};
    float bound = own.bound[2 * (n * own_blocks + blockIdx.y) + 1];
    const float* other_bound = other.bound + 2 * n * ((other.steps + ROWS - 1) / ROWS) + 1;
    auto row = [&](int i) { return (long long)n * own.steps + min(x + i, own.steps - 1); };

    float2 sum[LANE_ROWS] = {}, with_v = {0, 0}, exponential[LANE_ROWS];
#pragma unroll
    for (int i = 0; i < LANE_ROWS; i++)
        exponential[i] = d < padded ? *(const float2*)(own.exponentials + row(i) * padded + d) : float2{0, 0};
    Fetcher fetch(own, other, g, n, x0, d0, width, padded);
    float next[8], g_sum = 0;
    bool safe = bound + other_bound[0] <= SAFE_PRODUCT;
    fetch.read(next, others, 0, safe);
    for (int y0 = 0, stage = 0; y0 < other.steps; y0 += ROWS, stage ^= 1) {
        bool now_safe = safe;
        fetch.write(next, gs + stage * G_SIZE);
        if (OF_V)
#pragma unroll
            for (int i = 0; i < 8; i++) g_sum += next[i];
        copies_done();
        block_barrier();  // this stage is written, and the other one is read
        if (y0 + ROWS < other.steps) {
            safe = bound + other_bound[2 * (y0 / ROWS + 1)] <= SAFE_PRODUCT;
            fetch.read(next, others + (stage ^ 1) * OTHER_SIZE, y0 + ROWS, safe);
        }
        const float *tile = others + stage * OTHER_SIZE + 2 * lane, *of_g = gs + stage * G_SIZE + warp * LANE_ROWS;
        float2 of_tile = {0, 0};  // summed tile by tile: a long sum would lose what is small beside it
        if (now_safe) {
            add_rows<true, OF_V>(sum, of_tile, exponential, tile, of_g, sign);
        } else {
            float2 argument[LANE_ROWS];
#pragma unroll
            for (int i = 0; i < LANE_ROWS; i++) {
                argument[i].x = d < width ? widen(own.arguments[row(i) * width + d]) : 0.0f;
                argument[i].y = d + 1 < width ? widen(own.arguments[row(i) * width + d + 1]) : 0.0f;
            }
            add_rows<false, OF_V>(sum, of_tile, argument, tile, of_g, sign);
        }
        with_v.x += of_tile.x, with_v.y += of_tile.y;
    }
#pragma unroll
    for (int i = 0; i < LANE_ROWS; i++) {
        if (x + i >= own.steps) continue;
        float* to = gradient + row(i) * width + d;
        if (d < width) to[0] = (add ? to[0] : 0.0f) + 4 * v[d] * sum[i].x;
        if (d + 1 < width) to[1] = (add ? to[1] : 0.0f) + 4 * v[d + 1] * sum[i].y;
    }
    if (!OF_V) return;
    block_barrier();
    g_sum = block_sum(g_sum, shared + WARPS * SLICE);
    shared[warp * SLICE + 2 * lane] = with_v.x, shared[warp * SLICE + 2 * lane + 1] = with_v.y;
    block_barrier();
    for (int i = threadIdx.x; i < SLICE && d0 + i < width; i += 128) {
        float total = 0;
        for (int other_warp = 0; other_warp < WARPS; other_warp++) total += shared[other_warp * SLICE + i];
        of_v[((long long)n * own_blocks + blockIdx.y) * width + d0 + i] = turn(v[d0 + i], d0 + i) * (g_sum - 2 * total);
    }
}

KERNEL(128, 4) gradient_of_queries(
    Side queries, Side keys, const float* v, const float* g, float* gradient, float* of_v, int width, int padded, int add
) {
    walk<true>(queries, keys, v, g, gradient, of_v, width, padded, add);
}

KERNEL(128, 4) gradient_of_keys(
    Side keys, Side queries, const float* v, const float* g, float* gradient, float* of_v, int width, int padded, int add
) {
    walk<false>(keys, queries, v, g, gradient, of_v, width, padded, add);
}

// Scores and the gradient da of the weights to weights (as they met the values) and the gradient g of the scores,
// a row at a time: a = softmax(score), g = a (kept da - sum a kept da), so that g sums to 0 as the weights do to 1.
// grid: (queries, N); g replaces da.
KERNEL(128, 1) weights_and_gradient(
    const float* score, float* g, input_t* weight, Allowed allowed, Drawing drawing, int num_queries, int num_keys,
    int first_n, int first_t
) {
    SHARED(scratch);
    int t = first_t + blockIdx.x, n = first_n + blockIdx.y;
    long long row = ((long long)blockIdx.y * num_queries + blockIdx.x) * num_keys;
    score += row, g += row, weight += row;
    float best = -INFINITE, total = 0, along = 0;
    for (int s = threadIdx.x; s < num_keys; s += 128)
        if (allowed(n, t, s)) best = fmaxf(best, score[s]);
    best = block_max(best, scratch);
    for (int s = threadIdx.x; s < num_keys; s += 128) {
        float a = allowed(n, t, s) ? expf(score[s] - best) : 0.0f;
        total += a, along += a == 0 ? 0.0f : a * drawing(n, t, s) * g[s];
    }
    total = block_sum(total, scratch), along = block_sum(along, scratch);
    float share = total == 0 ? 0.0f : 1 / total;
    along *= share;
    for (int s = threadIdx.x; s < num_keys; s += 128) {
        float a = allowed(n, t, s) ? expf(score[s] - best) * share : 0.0f, kept = drawing(n, t, s);
        weight[s] = narrow(a * kept);
        g[s] = a == 0 ? 0.0f : a * (kept * g[s] - along);
    }
}

#define HELD 8  // numbers of a row that a thread of 128 holds; longer rows are read again

// Scores to weights, a row at a time, in place. `weight`: as they meet the values; null where they are the same.
KERNEL(128, 1) softmax(
    float* score, input_t* weight, Allowed allowed, Drawing drawing, int num_queries, int num_keys
) {
    SHARED(scratch);
    int t = blockIdx.x, n = blockIdx.y;
    long long row = ((long long)n * num_queries + t) * num_keys;
    float held[HELD], best = -INFINITE, total = 0;
    auto found = [&](int s) { return s < num_keys && allowed(n, t, s) ? score[row + s] : -INFINITE; };
#pragma unroll
    for (int i = 0; i < HELD; i++) best = fmaxf(best, held[i] = found(threadIdx.x + 128 * i));
    for (int s = threadIdx.x + 128 * HELD; s < num_keys; s += 128) best = fmaxf(best, found(s));
    best = block_max(best, scratch);
    best = best == -INFINITE ? 0.0f : best;
#pragma unroll
    for (int i = 0; i < HELD; i++) total += held[i] = expf(held[i] - best);
    for (int s = threadIdx.x + 128 * HELD; s < num_keys; s += 128) total += expf(found(s) - best);
    total = block_sum(total, scratch);
    float share = total == 0 ? 0.0f : 1 / total;
    auto put = [&](int s, float power) {
        float a = power * share;
        score[row + s] = a;
        if (weight) weight[row + s] = narrow(a * drawing(n, t, s));
    };
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (threadIdx.x + 128 * i < num_keys) put(threadIdx.x + 128 * i, held[i]);
    for (int s = threadIdx.x + 128 * HELD; s < num_keys; s += 128) put(s, expf(found(s) - best));
}

// The gradient da of the weights a to that of the scores, in place; `weight` as above.
KERNEL(128, 1) softmax_backward(
    const float* a, float* g, input_t* weight, Drawing drawing, int num_queries, int num_keys
) {
    SHARED(scratch);
    int t = blockIdx.x, n = blockIdx.y;
    long long row = ((long long)n * num_queries + t) * num_keys;
    float share[HELD], of_share[HELD], along = 0;
    auto kept = [&](int s) { return a[row + s] == 0 ? 0.0f : drawing(n, t, s) * g[row + s]; };
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int s = threadIdx.x + 128 * i;
        share[i] = s < num_keys ? a[row + s] : 0.0f, of_share[i] = s < num_keys ? kept(s) : 0.0f;
        along = fmaf(share[i], of_share[i], along);
    }
    for (int s = threadIdx.x + 128 * HELD; s < num_keys; s += 128) along = fmaf(a[row + s], kept(s), along);
    along = block_sum(along, scratch);
    auto put = [&](int s, float one, float of_one) {
        g[row + s] = one == 0 ? 0.0f : one * (of_one - along);
        if (weight) weight[row + s] = narrow(one * drawing(n, t, s));
    };
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (threadIdx.x + 128 * i < num_keys) put(threadIdx.x + 128 * i, share[i], of_share[i]);
    for (int s = threadIdx.x + 128 * HELD; s < num_keys; s += 128) put(s, a[row + s], kept(s));
}
