// e_ts = v·tanh(q_t + k_s) of some queries, written out: what a normaliser other than softmax, a bias, or the backward
// pass wants. grid: (key tiles, query tiles, N); `score` [N, num_queries, num_keys].
KERNEL(THREADS, 512 / THREADS) scores(Scores a, float* score) {
    SHARED(stages);
    int n = blockIdx.z, t0 = blockIdx.y * TILE_T, s0 = blockIdx.x * TILE_S;
    score_tile(stages, nullptr, a, n, t0, s0);
    for (int at = threadIdx.x; at < TILE_T * TILE_S; at += THREADS) {
        int t = t0 + at / TILE_S, s = s0 + at % TILE_S;
        if (t < a.num_queries && s < a.num_keys)
            score[((long long)n * a.num_queries + t) * a.num_keys + s] = stages[at / TILE_S * TILE_STRIDE + at % TILE_S];
    }
}
