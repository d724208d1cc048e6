// Scores to weights and back, a row at a time, in place. A row has LANES threads of a block's 128: some of a warp, or all.
// grid: (blocks of rows, N).

DEVICE float row_max(float x, float* scratch) {
    if (LANES > 32) return block_max(x, scratch);
    for (int lane = LANES / 2; lane; lane /= 2) x = fmaxf(x, shuffle_xor(x, lane));
    return x;
}
DEVICE float row_sum(float x, float* scratch) {
    if (LANES > 32) return block_sum(x, scratch);
    for (int lane = LANES / 2; lane; lane /= 2) x += shuffle_xor(x, lane);
    return x;
}
DEVICE int row_here() { return (blockIdx.x * 128 + threadIdx.x) / LANES; }

// Scores and the gradient da of the weights to weights (as they met the values) and the gradient g of the scores:
// a = softmax(score), g = a (kept da - sum a kept da), so that g sums to 0 as the weights do to 1; g replaces da.
KERNEL(128, 1) weights_and_gradient(
    const float* score, float* g, input_t* weight, Allowed allowed, Drawing drawing, int num_queries, int num_keys,
    int first_n, int first_t
) {
    SHARED(scratch);
    int lane = threadIdx.x % LANES, t = row_here(), n = first_n + blockIdx.y;
    if (t >= num_queries) return;
    long long row = ((long long)blockIdx.y * num_queries + t) * num_keys;
    t += first_t;
    score += row, g += row, weight += row;
    float best = -INFINITE, total = 0, along = 0;
    for (int s = lane; s < num_keys; s += LANES)
        if (allowed(n, t, s)) best = fmaxf(best, score[s]);
    best = row_max(best, scratch);
    for (int s = lane; s < num_keys; s += LANES) {
        float a = allowed(n, t, s) ? expf(score[s] - best) : 0.0f;
        total += a, along += a == 0 ? 0.0f : a * drawing(n, t, s) * g[s];
    }
    total = row_sum(total, scratch), along = row_sum(along, scratch);
    float share = total == 0 ? 0.0f : 1 / total;
    along *= share;
    for (int s = lane; s < num_keys; s += LANES) {
        float a = allowed(n, t, s) ? expf(score[s] - best) * share : 0.0f, kept = drawing(n, t, s);
        weight[s] = narrow(a * kept);
        g[s] = a == 0 ? 0.0f : a * (kept * g[s] - along);
    }
}

#define HELD 8  // numbers of a row that a thread holds; longer rows are read again

// Scores to weights. `weight`: as they meet the values; null where they are the same.
KERNEL(128, 1) softmax(
    float* score, input_t* weight, Allowed allowed, Drawing drawing, int num_queries, int num_keys
) {
    SHARED(scratch);
    int lane = threadIdx.x % LANES, t = row_here(), n = blockIdx.y;
    if (t >= num_queries) return;
    long long row = ((long long)n * num_queries + t) * num_keys;
    float held[HELD], best = -INFINITE, total = 0;
    auto found = [&](int s) { return s < num_keys && allowed(n, t, s) ? score[row + s] : -INFINITE; };
#pragma unroll
    for (int i = 0; i < HELD; i++) best = fmaxf(best, held[i] = LANES * i < num_keys ? found(lane + LANES * i) : -INFINITE);
    for (int s = lane + LANES * HELD; s < num_keys; s += LANES) best = fmaxf(best, found(s));
    best = row_max(best, scratch);
    best = best == -INFINITE ? 0.0f : best;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (LANES * i < num_keys) total += held[i] = expf(held[i] - best);
    for (int s = lane + LANES * HELD; s < num_keys; s += LANES) total += expf(found(s) - best);
    total = row_sum(total, scratch);
    float share = total == 0 ? 0.0f : 1 / total;
    auto put = [&](int s, float power) {
        float a = power * share;
        score[row + s] = a;
        if (weight) weight[row + s] = narrow(a * drawing(n, t, s));
    };
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (lane + LANES * i < num_keys) put(lane + LANES * i, held[i]);
    for (int s = lane + LANES * HELD; s < num_keys; s += LANES) put(s, expf(found(s) - best));
}

// The gradient da of the weights a to that of the scores; `weight` as above.
KERNEL(128, 1) softmax_backward(
    const float* a, float* g, input_t* weight, Drawing drawing, int num_queries, int num_keys
) {
    SHARED(scratch);
    int lane = threadIdx.x % LANES, t = row_here(), n = blockIdx.y;
    if (t >= num_queries) return;
    long long row = ((long long)n * num_queries + t) * num_keys;
    float share[HELD], of_share[HELD], along = 0;
    auto kept = [&](int s) { return a[row + s] == 0 ? 0.0f : drawing(n, t, s) * g[row + s]; };
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int s = lane + LANES * i;
        if (LANES * i >= num_keys) break;
        share[i] = s < num_keys ? a[row + s] : 0.0f, of_share[i] = s < num_keys ? kept(s) : 0.0f;
        along = fmaf(share[i], of_share[i], along);
    }
    for (int s = lane + LANES * HELD; s < num_keys; s += LANES) along = fmaf(a[row + s], kept(s), along);
    along = row_sum(along, scratch);
    auto put = [&](int s, float one, float of_one) {
        g[row + s] = one == 0 ? 0.0f : one * (of_one - along);
        if (weight) weight[row + s] = narrow(one * drawing(n, t, s));
    };
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (lane + LANES * i < num_keys) put(lane + LANES * i, share[i], of_share[i]);
    for (int s = lane + LANES * HELD; s < num_keys; s += LANES) put(s, a[row + s], kept(s));
}
