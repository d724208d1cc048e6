// Gradients of one query against its keys: a block for each reads every key and value once and writes their gradients.

#define THREADS 256

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

// Gradients of everything; `of_v` [N, width] float32. Shared memory: gradients of the scores and of the output, scratch.
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
