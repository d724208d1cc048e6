// tanh x = sum_m c_m sin(w_m x), w_m = (2 m - 1) w, and sin w(q + k) = sin wq cos wk + cos wq sin wk: the score as a dot
// product of 2 TERMS numbers for every dimension, for the tensor cores. float16 keeps them to 2^-12.

struct Series {
    float base, coefficient[TERMS];
};

// x [rows, width] -> features [rows, 2 TERMS width] and the largest |x| of each batch entry into range[2 n + side]
// (0 before). Queries: v c sin, v c cos; keys: cos, sin. grid: (row blocks, N); v null: keys.
KERNEL(256, 1) features(
    const input_t* x, const float* v, Series series, uint16* feature, float* range, int steps, int width, int rows
) {
    SHARED(scratch);
    int n = blockIdx.y, first = blockIdx.x * rows;
    float largest = 0;
    for (int at = threadIdx.x; at < min(rows, steps - first) * width; at += 256) {
        long long row = (long long)n * steps + first + at / width;
        int d = at % width;
        float argument = widen(x[row * width + d]), factor = v ? v[(long long)n * width + d] : 1.0f;
        largest = fmaxf(largest, or_infinite(fabsf(argument)));
        // sin and cos of odd multiples by s(m + 1) = 2 cos(2 angle) s(m) - s(m - 1)
        float sine = sinf(series.base * argument), cosine = cosf(series.base * argument);
        float sine_before = -sine, cosine_before = cosine, twice = 2 - 4 * sine * sine;
        uint16* to = feature + row * (2 * TERMS * width) + d;
#pragma unroll
        for (int m = 0; m < TERMS; m++) {
            float scale = v ? factor * series.coefficient[m] : 1.0f;
            to[(2 * m) * width] = to_half(scale * (v ? sine : cosine));
            to[(2 * m + 1) * width] = to_half(scale * (v ? cosine : sine));
            float next_sine = fmaf(twice, sine, -sine_before), next_cosine = fmaf(twice, cosine, -cosine_before);
            sine_before = sine, sine = next_sine, cosine_before = cosine, cosine = next_cosine;
        }
    }
    largest = block_max(largest, scratch);
    if (threadIdx.x == 0) raise(range + 2 * n + (v ? 0 : 1), largest);
}

// Softmax over the allowed keys, and dropout, a row at a time. grid: (queries, N)
KERNEL(128, 1) weights(
    const float* score, input_t* weight, float* log_sum, Allowed allowed, Drawing drawing, int num_queries, int num_keys,
    int first_n, int first_t
) {
    SHARED(scratch);
    int t = first_t + blockIdx.x, n = first_n + blockIdx.y;
    long long row = (long long)blockIdx.y * num_queries + blockIdx.x;
    score += row * num_keys, weight += row * num_keys;
    float best = -INFINITE, total = 0;
    for (int s = threadIdx.x; s < num_keys; s += 128)
        if (allowed(n, t, s)) best = fmaxf(best, score[s]);
    best = block_max(best, scratch);
    for (int s = threadIdx.x; s < num_keys; s += 128) total += allowed(n, t, s) ? expf(score[s] - best) : 0.0f;
    total = block_sum(total, scratch);
    float share = total == 0 ? 0.0f : 1 / total;
    for (int s = threadIdx.x; s < num_keys; s += 128)
        weight[s] = narrow(allowed(n, t, s) ? expf(score[s] - best) * share * drawing(n, t, s) : 0.0f);
    if (threadIdx.x == 0) log_sum[row] = total == 0 ? INFINITE : best + logf(total);
}
