// softmax over the allowed keys and the weighted sum, tile after tile of keys: nothing of size T x S is kept.
// grid: (query tiles, N). Shared memory: the stages (the tile of weights lies over them), the sums, four rows; RAW: v.
//
// The weights go to the tensor cores in two halves of ten bits each: with float32 values three products
// (high high + high low + low high) carry 21 bits; 16-bit values fit into ten bits and need two. Tensor cores cut what they
// add up: after 16 keys a rounded addition takes over.
//
// They multiply values' by weights': 16 columns x 16 keys x 8 queries. Inside a product keys and columns may stand in any
// order, so they stand as memory is read best: of 16 keys a lane has four in turn, of the columns SPAN in turn, and a
// weight lies where the lane that multiplies it reads it, as 16 bytes with what else belongs to its row.

#define STAGES_SIZE (2 * (STAGE_SIZE > TILE_T * TILE_S ? STAGE_SIZE : TILE_T * TILE_S))
#define SIXTEENS (TILE_S / 16)           // of keys
#define EIGHTS (TILE_T / 8)              // of queries
#define SPAN (EIGHTS < 8 ? 4 : 2)        // columns of the values for one lane, side by side
#define COLUMNS (8 * SPAN)               // and for one warp at a time
#define AT_ONCE (8 / SPAN)               // eights of queries whose chains of products run side by side
#define PIECES (EIGHTS * SPAN / 2 * 32)  // of 16 bytes: the sums of these columns, each where its lane alone reads it
#define STRIDE (THREADS / 32 * COLUMNS)  // between the columns of one warp

// Lanes that share a row when scores become weights: so many that one round does all rows, where a row has enough keys
#define LANES (WARPS_S * SPLIT < 4 ? 4 : WARPS_S * SPLIT)
#define ROUNDS (TILE_T * LANES / THREADS)
#define FOURS (TILE_S / (4 * LANES))     // keys of a lane and row, by fours

struct alignas(SPAN * sizeof(input_t)) Span {
    input_t x[SPAN];
};

struct Rows {  // of a tile: the highest score, the sum of weights and what its rounding lost, by what sums shrink now
    float *highest, *total, *lost, *shrink;
};

// The weights of two keys of a query: `four` counts the tile's keys by fours, `step` is the half of the four
DEVICE void keep(float4* weights, int row, int four, int step, float x, float y) {
    float high_x = to_ten_bits(x), high_y = to_ten_bits(y);
    int at = ((row / 8 * SIXTEENS + four / 4) * 2 + step) * 32 + row % 8 * 4 + four % 4;
    weights[at] = float4{high_x, high_y, x - high_x, y - high_y};
}

// Scores to weights e^(score - highest so far); what the row summed up before shrinks by `shrink`.
// `kept`, or null: the weights themselves [N, queries, keys], where all keys are in this tile.
DEVICE void weigh(
    float* tile, const Rows& rows, float* kept, const Scores& a, const Allowed& allowed, const Drawing& drawing, int n,
    int t0, int s0
) {
    int lane = threadIdx.x % LANES, first = threadIdx.x / LANES;
    bool whole = t0 + TILE_T <= a.num_queries && s0 + TILE_S <= a.num_keys;
    bool open = whole && !allowed.bytes && s0 - (t0 + TILE_T) >= allowed.low && s0 + TILE_S - t0 <= allowed.high;
    float score[ROUNDS][FOURS][4];
#pragma unroll
    for (int round = 0; round < ROUNDS; round++)
#pragma unroll
        for (int j = 0; j < FOURS; j++) {
            int row = first + round * (THREADS / LANES), key = (lane + j * LANES) * 4;
            float4 x = *(const float4*)(tile + row * TILE_STRIDE + key);
            score[round][j][0] = x.x, score[round][j][1] = x.y, score[round][j][2] = x.z, score[round][j][3] = x.w;
            if (!open)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int t = t0 + row, s = s0 + key + i;
                    if (t >= a.num_queries || s >= a.num_keys || !allowed(n, t, s)) score[round][j][i] = -INFINITE;
                }
        }
    block_barrier();  // the weights lie where the scores were
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        int row = first + round * (THREADS / LANES);
        float before = rows.highest[row], best = before, sum = 0;
#pragma unroll
        for (int j = 0; j < FOURS; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) best = fmaxf(best, score[round][j][i]);
#pragma unroll
        for (int step = LANES / 2; step; step /= 2) best = fmaxf(best, shuffle_xor(best, step));
        float base = best == -INFINITE ? 0.0f : best;
#pragma unroll
        for (int j = 0; j < FOURS; j++) {
            int four = lane + j * LANES;
            float x[4];
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] = score[round][j][i] = expf(score[round][j][i] - base);
            sum += (x[0] + x[1]) + (x[2] + x[3]);
            if (drawing.threshold)
#pragma unroll
                for (int i = 0; i < 4; i++) x[i] *= drawing(n, t0 + row, s0 + 4 * four + i);
            keep((float4*)tile, row, four, 0, x[0], x[1]), keep((float4*)tile, row, four, 1, x[2], x[3]);
        }
#pragma unroll
        for (int step = LANES / 2; step; step /= 2) sum += shuffle_xor(sum, step);
        if (kept && t0 + row < a.num_queries) {
            float share = sum == 0 ? 0.0f : 1 / sum;
            float* to = kept + ((long long)n * a.num_queries + t0 + row) * a.num_keys;
#pragma unroll
            for (int j = 0; j < FOURS; j++) {
                int key = (lane + j * LANES) * 4;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (key + i < a.num_keys) to[key + i] = score[round][j][i] * share;
            }
        }
        if (lane == 0) {
            float less = expf(before - base), old = rows.total[row] * less, more = fmaf(rows.lost[row], less, sum);
            float total = old + more;
            rows.shrink[row] = less, rows.highest[row] = best, rows.total[row] = total;
            rows.lost[row] = more - (total - old);
        }
    }
}

// Four keys of a lane's columns, out of 16. Rows and columns behind the last repeat it: their weights are 0, and their
// sums nobody reads.
struct Values {
    const input_t* from;
    int last, width;

    template <bool WIDE> DEVICE void load(Span (&to)[4], int sixteen, int column) const {  // WIDE: a span is read as one
        int lane = threadIdx.x % 32, key = sixteen * 16 + lane % 4 * 4, d = column + lane / 4 * SPAN;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = min(key + i, last) * width;
            if (WIDE) to[i] = *(const Span*)(from + (row + min(d, width - SPAN)));
            else
#pragma unroll
                for (int c = 0; c < SPAN; c++) to[i].x[c] = from[row + min(d + c, width - 1)];
        }
    }
};

// Eight keys, a few eights of queries and all of a warp's columns, with one half (of ten bits) on each side
DEVICE void multiply_add(
    float (&part)[AT_ONCE][SPAN / 2][4], const float (&values)[SPAN / 2][4], const float (&weights)[AT_ONCE][2]
) {
#pragma unroll
    for (int q = 0; q < AT_ONCE; q++)
#pragma unroll
        for (int c = 0; c < SPAN / 2; c++) multiply_add_16x8x8(part[q][c], values[c], weights[q]);
}

// sums = shrink sums + weights values: [TILE_T, TILE_S] times [TILE_S, width]; `ahead`: the first keys of the warp's columns
template <bool WIDE>
DEVICE void add_values(
    float4* sums, const float4* weights, const float* shrink, const Values& values, Span (&ahead)[4], bool anew
) {
    int lane = threadIdx.x % 32;
    weights += lane, shrink += lane % 4 * 2;
#pragma unroll 1
    for (int column = threadIdx.x / 32 * COLUMNS; column < values.width; column += STRIDE) {
        float sum[EIGHTS][SPAN / 2][4] = {};
#pragma unroll 1
        for (int sixteen = 0; sixteen * 16 <= values.last; sixteen++) {
            float heads[2][SPAN / 2][4], tails[2][SPAN / 2][4];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < SPAN; c++) {
                    float x = widen(ahead[i].x[c]), head = INPUT == 0 ? to_ten_bits(x) : x;
                    heads[i / 2][c / 2][i % 2 * 2 + c % 2] = head, tails[i / 2][c / 2][i % 2 * 2 + c % 2] = x - head;
                }
            bool more = sixteen * 16 + 16 <= values.last;
            values.load<WIDE>(ahead, more ? sixteen + 1 : 0, more ? column : column + STRIDE);
            warp_barrier();  // keeps the compiler from asking for them only when they are needed
#pragma unroll
            for (int q0 = 0; q0 < EIGHTS; q0 += AT_ONCE) {
                float part[AT_ONCE][SPAN / 2][4] = {};
#pragma unroll
                for (int step = 0; step < 2; step++) {
                    float big[AT_ONCE][2], small[AT_ONCE][2];
#pragma unroll
                    for (int q = 0; q < AT_ONCE; q++) {
                        float4 x = weights[(((q0 + q) * SIXTEENS + sixteen) * 2 + step) * 32];
                        big[q][0] = x.x, big[q][1] = x.y, small[q][0] = x.z, small[q][1] = x.w;
                    }
                    warp_barrier();
                    multiply_add(part, heads[step], small);
                    if (INPUT == 0) multiply_add(part, tails[step], big);
                    multiply_add(part, heads[step], big);
                }
#pragma unroll
                for (int q = 0; q < AT_ONCE; q++)
#pragma unroll
                    for (int c = 0; c < SPAN / 2; c++)
#pragma unroll
                        for (int i = 0; i < 4; i++) sum[q0 + q][c][i] += part[q][c][i];
            }
        }
        float4* mine = sums + column / COLUMNS * PIECES + lane;
#pragma unroll
        for (int q = 0; q < EIGHTS; q++) {
            float even = shrink[q * 8], odd = shrink[q * 8 + 1];
#pragma unroll
            for (int c = 0; c < SPAN / 2; c++) {
                float4 &to = mine[(q * (SPAN / 2) + c) * 32], old = anew ? float4{0, 0, 0, 0} : to;
                float* x = sum[q][c];
                to = float4{fmaf(old.x, even, x[0]), fmaf(old.y, odd, x[1]), fmaf(old.z, even, x[2]), fmaf(old.w, odd, x[3])};
            }
        }
    }
}

// sums / total, by the lanes that made them
DEVICE void write_sums(
    input_t* output, const float4* sums, const float* total, int num_queries, int width, int n, int t0, bool wide
) {
    int lane = threadIdx.x % 32;
    for (int column = threadIdx.x / 32 * COLUMNS; column < width; column += STRIDE)
#pragma unroll 1
        for (int q = 0; q < EIGHTS; q++) {
            int row = q * 8 + lane % 4 * 2, d = column + lane / 4 * SPAN;
            float sum[2][SPAN];
#pragma unroll
            for (int c = 0; c < SPAN / 2; c++) {
                float4 x = sums[column / COLUMNS * PIECES + (q * (SPAN / 2) + c) * 32 + lane];
                sum[0][2 * c] = x.x, sum[1][2 * c] = x.y, sum[0][2 * c + 1] = x.z, sum[1][2 * c + 1] = x.w;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (t0 + row + i >= num_queries || d >= width) continue;
                float all = total[row + i];
                Span made;
#pragma unroll
                for (int c = 0; c < SPAN; c++) made.x[c] = narrow(all == 0 ? 0.0f : sum[i][c] / all);
                input_t* to = output + ((long long)n * num_queries + t0 + row + i) * width + d;
                if (wide) *(Span*)to = made;
                else
#pragma unroll
                    for (int c = 0; c < SPAN; c++)
                        if (d + c < width) to[c] = made.x[c];
            }
        }
}

KERNEL(THREADS, BLOCKS) attend(
    Scores a, Allowed allowed, Drawing drawing, const input_t* value, input_t* output, float* log_sum, float* kept,
    int value_width, Beyond beyond
) {
    SHARED(stages);
    if (beyond.leaves(blockIdx.y)) return;
    float* row = stages + STAGES_SIZE + TILE_T * ((value_width + 31) / 32 * 32);
    Rows rows = {row, row + TILE_T, row + 2 * TILE_T, row + 3 * TILE_T};
    float4* sums = (float4*)(stages + STAGES_SIZE);
    int n = blockIdx.y, t0 = blockIdx.x * TILE_T;
    for (int i = threadIdx.x; i < TILE_T; i += THREADS) rows.highest[i] = -INFINITE, rows.total[i] = rows.lost[i] = 0;
    bool wide = value_width % SPAN == 0 && ((uint64)value | (uint64)output) % sizeof(Span) == 0;
    bool anew = true;  // nothing is summed yet
    // the first and last key that any query of the tile may see, as far as the band says
    long long first = max((long long)t0 + allowed.low, 0ll);
    long long last = min((long long)min(t0 + TILE_T, a.num_queries) - 1 + allowed.high, (long long)a.num_keys - 1);
    if (kept) first = 0, last = a.num_keys - 1;  // what nobody may see is written too
    int s0 = (int)min(first, (long long)a.num_keys) / TILE_S * TILE_S;
    value += ((long long)n * a.num_keys + s0) * value_width;
    for (; s0 <= last; s0 += TILE_S, value += TILE_S * value_width) {
        if (allowed.bytes && !kept) {
            bool some = false;
            for (int at = threadIdx.x; at < TILE_T * TILE_S && !some; at += THREADS) {
                int t = t0 + at / TILE_S, s = s0 + at % TILE_S;
                some = t < a.num_queries && s < a.num_keys && allowed(n, t, s);
            }
            if (!block_any(some)) {
                if (RAW) break;
                continue;
            }
        }
        block_barrier();  // nobody reads the weights of the tile before any longer
        score_tile(stages, row + 4 * TILE_T, a, n, t0, s0);
        Values values = {value, min(TILE_S, a.num_keys - s0) - 1, value_width};
        Span ahead[4];  // on their way while the weights are made
        int column = threadIdx.x / 32 * COLUMNS;
        if (column < value_width && wide) values.load<true>(ahead, 0, column);
        else if (column < value_width) values.load<false>(ahead, 0, column);
        weigh(stages, rows, kept, a, allowed, drawing, n, t0, s0);
        block_barrier();
        if (wide) add_values<true>(sums, (const float4*)stages, rows.shrink, values, ahead, anew);
        else add_values<false>(sums, (const float4*)stages, rows.shrink, values, ahead, anew);
        anew = false;
        if (RAW) break;  // all keys are one tile
    }
    block_barrier();
    write_sums(output, sums, rows.total, a.num_queries, value_width, n, t0, wide);
    for (int i = threadIdx.x; i < TILE_T; i += THREADS)  // a row without keys: every weight e^(e - inf) = 0
        if (t0 + i < a.num_queries) {
            float total = rows.total[i];
            log_sum[(long long)n * a.num_queries + t0 + i] = total == 0 ? INFINITE : rows.highest[i] + logf(total);
        }
}
