// One query against its keys, a block for each: what a recurrent decoder asks at every step. Bound by memory: every key
// and value is read once forward, once (and its gradient written) backward.
//
// Here an exponential serves one pair only, so it is taken of the sum: w = 1 / (1 + 2^z), z = 2 log2(e) (q + k). With z
// cut at 30, where w < 2^-30, four denominators multiply to at most 2^120 and share a reciprocal.

#define THREADS 256

DEVICE float denominator(float q, float k) { return denominator(q, k, CUT_BY_FOUR); }

// sum_d v_d tanh(q_d + k_d) of a warp, in all lanes
DEVICE float score_of(const float* q, const float* v, const input_t* key, int width) {
    float sum = 0;
    int lane = threadIdx.x % 32, d = lane;
    for (; d + 96 < width; d += 128) {
        float x = denominator(q[d], widen(key[d])), y = denominator(q[d + 32], widen(key[d + 32]));
        float z = denominator(q[d + 64], widen(key[d + 64])), w = denominator(q[d + 96], widen(key[d + 96]));
        float a = v[d], b = v[d + 32], c = v[d + 64], e = v[d + 96], xy = x * y, zw = z * w;
        float above = fmaf(fmaf(a, y, b * x), zw, fmaf(c, w, e * z) * xy);
        sum += fmaf(-2 * above, reciprocal(xy * zw), (a + b) + (c + e));
    }
    for (; d < width; d += 32) sum = fmaf(v[d], fmaf(-2, reciprocal(denominator(q[d], widen(key[d]))), 1), sum);
    return warp_sum(sum);
}

// How threads share columns and rows: a thread has one column at a time and every `groups`-th row
struct Share {
    int columns, groups, column, group;
    DEVICE Share(int width) {
        columns = min(THREADS, (width + 31) / 32 * 32), groups = THREADS / columns;
        column = threadIdx.x % columns, group = threadIdx.x / columns;
    }
    DEVICE float over_groups(float x, float* scratch) const {  // in group 0, the sum over groups; all must come
        if (groups == 1) return x;
        if (group < groups) scratch[threadIdx.x] = x;
        block_barrier();
        for (int i = 1; i < groups; i++) x += column + i * columns < THREADS && group == 0 ? scratch[column + i * columns] : 0.0f;
        block_barrier();
        return x;
    }
};

// Shared memory: queries, v, weights, scratch. grid: N. `weight` [N, S] float32, before dropout.
KERNEL(THREADS, 1) step(
    const input_t* query, const input_t* key, const float* v, const input_t* value, Allowed allowed, Drawing drawing,
    input_t* output, float* weight, int num_keys, int width, int value_width, int v_stride
) {
    SHARED(q);
    float *of_v = q + width, *a = of_v + width, *scratch = a + num_keys;
    int n = blockIdx.x;
    key += (long long)n * num_keys * width, value += (long long)n * num_keys * value_width;
    for (int d = threadIdx.x; d < width; d += THREADS)
        q[d] = widen(query[(long long)n * width + d]), of_v[d] = v[(long long)n * v_stride + d];
    block_barrier();
    float best = -INFINITE, sum = 0;
    for (int s = threadIdx.x / 32; s < num_keys; s += THREADS / 32) {
        bool may = allowed(n, 0, s);
        float score = may ? score_of(q, of_v, key + (long long)s * width, width) : -INFINITE;
        if (threadIdx.x % 32 == 0) a[s] = score;
        best = fmaxf(best, score);
    }
    best = block_max(best, scratch);
    best = best == -INFINITE ? 0.0f : best;
    for (int s = threadIdx.x; s < num_keys; s += THREADS) sum += a[s] = expf(a[s] - best);
    sum = block_sum(sum, scratch);
    float share = sum == 0 ? 0.0f : 1 / sum;
    for (int s = threadIdx.x; s < num_keys; s += THREADS) {
        float one = a[s] * share;
        weight[(long long)n * num_keys + s] = one;
        a[s] = one * drawing(n, 0, s);
    }
    block_barrier();
    Share mine(value_width);
    for (int first = 0; first < value_width; first += mine.columns) {
        int d = first + mine.column;
        float total = 0;
        if (d < value_width && mine.group < mine.groups)
#pragma unroll 4
            for (int s = mine.group; s < num_keys; s += mine.groups)
                total = fmaf(a[s], widen(value[(long long)s * value_width + d]), total);
        total = mine.over_groups(total, scratch);
        if (d < value_width && mine.group == 0) output[(long long)n * value_width + d] = narrow(total);
    }
}

// Gradients of everything; `of_v` [N, width] float32. Shared memory: as above, and the gradient of the output.
KERNEL(THREADS, 1) step_backward(
    const input_t* grad, const float* grad_weight, const input_t* query, const input_t* key, const float* v,
    const input_t* value, const float* weight, Allowed allowed, Drawing drawing, input_t* of_query, input_t* of_key,
    float* of_v, input_t* of_value, int num_keys, int width, int value_width, int v_stride
) {
    SHARED(g);
    float *scratch = g + num_keys, *of_output = scratch + THREADS;
    int n = blockIdx.x, lane = threadIdx.x % 32;
    long long keys = (long long)n * num_keys;
    for (int d = threadIdx.x; d < value_width; d += THREADS) of_output[d] = widen(grad[(long long)n * value_width + d]);
    block_barrier();
    for (int s = threadIdx.x / 32; s < num_keys; s += THREADS / 32) {
        long long row = (keys + s) * value_width;
        float a = weight[keys + s], kept = drawing(n, 0, s), along = 0;
        for (int d = lane; d < value_width; d += 32) {
            along = fmaf(of_output[d], widen(value[row + d]), along);
            of_value[row + d] = narrow(a * kept * of_output[d]);
        }
        along = warp_sum(along) * kept + (grad_weight ? grad_weight[keys + s] : 0.0f);
        if (lane == 0) g[s] = along;
    }
    block_barrier();
    float sum = 0;
    for (int s = threadIdx.x; s < num_keys; s += THREADS) sum += allowed(n, 0, s) ? weight[keys + s] * g[s] : 0.0f;
    sum = block_sum(sum, scratch);
    for (int s = threadIdx.x; s < num_keys; s += THREADS)
        g[s] = allowed(n, 0, s) ? weight[keys + s] * (g[s] - sum) : 0.0f;
    block_barrier();
    Share mine(width);
    for (int first = 0; first < width; first += mine.columns) {
        int d = first + mine.column;
        float to_query = 0, to_v = 0;
        if (d < width && mine.group < mine.groups) {
            float q = widen(query[(long long)n * width + d]), factor = 4 * v[(long long)n * v_stride + d];
#pragma unroll 4
            for (int s = mine.group; s < num_keys; s += mine.groups) {
                long long at = (keys + s) * width + d;
                float w = reciprocal(denominator(q, widen(key[at]))), slope = g[s] == 0 ? 0.0f : g[s] * fmaf(-w, w, w) * factor;
                of_key[at] = narrow(slope);
                to_query += slope, to_v += g[s] == 0 ? 0.0f : g[s] * fmaf(-2, w, 1);
            }
        }
        to_query = mine.over_groups(to_query, scratch), to_v = mine.over_groups(to_v, scratch);
        if (d < width && mine.group == 0)
            of_query[(long long)n * width + d] = narrow(to_query), of_v[(long long)n * width + d] = to_v;
    }
}
