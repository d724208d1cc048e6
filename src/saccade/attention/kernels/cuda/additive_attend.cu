// softmax over the allowed keys and the weighted sum, tile after tile of keys: nothing of size T x S is kept.
// grid: (query tiles, N). Shared memory: the stages (the tile of weights lies over them), the sums, three rows.
//
// The weights go to the tensor cores in two halves of ten bits each: with float32 values three products
// (high high + high low + low high) carry 21 bits; 16-bit values fit into ten bits and need two.

#define HALF_SIZE (TILE_T * TILE_STRIDE)
#define STAGES_SIZE (2 * (STAGE_SIZE > HALF_SIZE ? STAGE_SIZE : HALF_SIZE))
#define COLUMNS 32  // of the values, for one warp at a time
#define TILES_M (TILE_T / 16)
#define SUM_STRIDE(width) (((width) + 31) / 32 * 32 + 8)

// The nearest float with ten bits behind the point; what is left over then has either sign, and no sum drifts
DEVICE float to_ten_bits(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u); }

#define ROWS_AT_ONCE 4  // a warp reduces several rows side by side: one row's shuffles wait for the others'

// Scores to weights e^(score - highest so far), row by row; what the row summed up before shrinks by `shrink`
DEVICE void weigh(
    float* high, float* low, float* highest, float* total, float* shrink, const Scores& a, const Allowed& allowed,
    const Drawing& drawing, int n, int t0, int s0
) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool whole = t0 + TILE_T <= a.num_queries && s0 + TILE_S <= a.num_keys;
    bool open = whole && !allowed.bytes && s0 - (t0 + TILE_T) >= allowed.low && s0 + TILE_S - t0 <= allowed.high;
#pragma unroll 1
    for (int first = warp * ROWS_AT_ONCE; first < TILE_T; first += THREADS / 32 * ROWS_AT_ONCE) {
        float score[ROWS_AT_ONCE][WARPS_S], best[ROWS_AT_ONCE], sum[ROWS_AT_ONCE], base[ROWS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            best[i] = -INFINITE, sum[i] = 0;
#pragma unroll
            for (int j = 0; j < WARPS_S; j++) {
                int t = t0 + first + i, s = s0 + lane + 32 * j;
                bool may = open || (t < a.num_queries && s < a.num_keys && allowed(n, t, s));
                score[i][j] = may ? high[(first + i) * TILE_STRIDE + lane + 32 * j] : -INFINITE;
                best[i] = fmaxf(best[i], score[i][j]);
            }
        }
#pragma unroll
        for (int step = 16; step; step /= 2)
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; i++) best[i] = fmaxf(best[i], shuffle_xor(best[i], step));
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            best[i] = fmaxf(best[i], highest[first + i]);
            base[i] = best[i] == -INFINITE ? 0.0f : best[i];
#pragma unroll
            for (int j = 0; j < WARPS_S; j++) {
                float weight = expf(score[i][j] - base[i]);
                sum[i] += weight;
                if (drawing.threshold) weight *= drawing(n, t0 + first + i, s0 + lane + 32 * j);
                float part = to_ten_bits(weight);
                high[(first + i) * TILE_STRIDE + lane + 32 * j] = part;
                low[(first + i) * TILE_STRIDE + lane + 32 * j] = weight - part;
            }
        }
#pragma unroll
        for (int step = 16; step; step /= 2)
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; i++) sum[i] += shuffle_xor(sum[i], step);
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++)
            if (lane == i) {
                float less = expf(highest[first + i] - base[i]);
                shrink[first + i] = less, highest[first + i] = best[i], total[first + i] = total[first + i] * less + sum[i];
            }
    }
}

// sums = shrink sums + weights values: [TILE_T, TILE_S] times [TILE_S, width], 32 columns a warp
DEVICE void add_values(
    float* sums, const float* high, const float* low, const float* shrink, const input_t* value, int num_keys, int width,
    int s0
) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, quarter = lane % 4;
    int stride = SUM_STRIDE(width), keys = min(TILE_S, num_keys - s0);
    value += (long long)s0 * width;
    for (int column = warp * COLUMNS; column < width; column += THREADS / 32 * COLUMNS) {
        float sum[TILES_M][COLUMNS / 8][4];
#pragma unroll
        for (int m = 0; m < TILES_M; m++)
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int at = m * 16 + row + i / 2 * 8;
                    sum[m][c][i] = sums[at * stride + column + c * 8 + 2 * quarter + i % 2] * shrink[at];
                }
#pragma unroll 1
        for (int k = 0; k < keys; k += 8) {
            float heads[COLUMNS / 8][2];
#if INPUT == 0
            float tails[COLUMNS / 8][2];
#endif
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int s = k + quarter + 4 * i, d = column + c * 8 + row;
                    float x = s < keys && d < width ? widen(value[s * width + d]) : 0.0f;
                    heads[c][i] = to_ten_bits(x);
#if INPUT == 0
                    tails[c][i] = x - heads[c][i];
#endif
                }
#pragma unroll
            for (int m = 0; m < TILES_M; m++) {
                float big[4], small[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int at = (m * 16 + row + i % 2 * 8) * TILE_STRIDE + k + quarter + i / 2 * 4;
                    big[i] = high[at], small[i] = low[at];
                }
#pragma unroll
                for (int c = 0; c < COLUMNS / 8; c++) {
                    float part[4] = {};  // tensor cores cut what they add: a sum of their own is rounded instead
                    multiply_add_16x8x8(part, small, heads[c]);
#if INPUT == 0
                    multiply_add_16x8x8(part, big, tails[c]);
#endif
                    multiply_add_16x8x8(part, big, heads[c]);
#pragma unroll
                    for (int i = 0; i < 4; i++) sum[m][c][i] += part[i];
                }
            }
        }
#pragma unroll
        for (int m = 0; m < TILES_M; m++)
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sums[(m * 16 + row + i / 2 * 8) * stride + column + c * 8 + 2 * quarter + i % 2] = sum[m][c][i];
    }
}

KERNEL(THREADS, BLOCKS) attend(
    Scores a, Allowed allowed, Drawing drawing, const input_t* value, input_t* output, float* log_sum, int value_width,
    Beyond beyond
) {
    SHARED(stages);
    if (beyond.leaves(blockIdx.y)) return;
    float *sums = stages + STAGES_SIZE, *highest = sums + TILE_T * SUM_STRIDE(value_width);
    float *total = highest + TILE_T, *shrink = total + TILE_T;
    int n = blockIdx.y, t0 = blockIdx.x * TILE_T;
    for (int i = threadIdx.x; i < TILE_T * SUM_STRIDE(value_width); i += THREADS) sums[i] = 0;
    for (int i = threadIdx.x; i < TILE_T; i += THREADS) highest[i] = -INFINITE, total[i] = 0;
    value += (long long)n * a.num_keys * value_width;
    // the first and last key that any query of the tile may see, as far as the band says
    long long first = max((long long)t0 + allowed.low, 0ll);
    long long last = min((long long)min(t0 + TILE_T, a.num_queries) - 1 + allowed.high, (long long)a.num_keys - 1);
    for (int s0 = (int)min(first, (long long)a.num_keys) / TILE_S * TILE_S; s0 <= last; s0 += TILE_S) {
        if (allowed.bytes) {
            bool some = false;
            for (int at = threadIdx.x; at < TILE_T * TILE_S && !some; at += THREADS) {
                int t = t0 + at / TILE_S, s = s0 + at % TILE_S;
                some = t < a.num_queries && s < a.num_keys && allowed(n, t, s);
            }
            if (!block_any(some)) continue;
        }
        block_barrier();  // nobody reads the weights of the tile before any longer
        score_tile(stages, stages, a, n, t0, s0);
        weigh(stages, stages + HALF_SIZE, highest, total, shrink, a, allowed, drawing, n, t0, s0);
        block_barrier();
        add_values(sums, stages, stages + HALF_SIZE, shrink, value, a.num_keys, value_width, s0);
    }
    block_barrier();
    for (int at = threadIdx.x; at < TILE_T * value_width; at += THREADS) {
        int row = at / value_width, t = t0 + row;
        float sum = total[row];
        if (t < a.num_queries)
            output[((long long)n * a.num_queries + t) * value_width + at % value_width] =
                narrow(sum == 0 ? 0.0f : sums[row * SUM_STRIDE(value_width) + at % value_width] / sum);
    }
    for (int row = threadIdx.x; row < TILE_T; row += THREADS)  // a row without keys: every weight e^(e - inf) = 0
        if (t0 + row < a.num_queries)
            log_sum[(long long)n * a.num_queries + t0 + row] = total[row] == 0 ? INFINITE : highest[row] + logf(total[row]);
}
