// Scores of a tile of queries and keys: sum_d 1 / (c_d + E_td F_sd), four fractions to a reciprocal.
//
// A warp owns 32 x 32 pairs, 2 x 4 tiles of 16 x 8; WARPS_T x WARPS_S warps make the tile and SPLIT such teams share the
// width. The tensor cores make the denominators, one product of four for each dimension and 16 x 8 pairs: both halves of
// E with both of F, and c to start from. What is left of a term is its factor of the common denominator and its part of
// the numerator.

#define TILE_T (32 * WARPS_T)
#define TILE_S (32 * WARPS_S)
#define THREADS (32 * WARPS_T * WARPS_S * SPLIT)
#define DEPTH 8                         // dimensions of a team at a time
#define STAGE_WIDTH (DEPTH * SPLIT)
#define CHUNKS (STAGE_WIDTH / 2)        // of 16 bytes in a row of a stage: two rows' numbers of two dimensions
#define COPY_ROWS (THREADS / CHUNKS)
#define STAGE_STRIDE (2 * STAGE_WIDTH + 4)  // rows in turn lie four banks apart: no two of eight meet
#define STAGE_SIZE ((TILE_T + TILE_S) * STAGE_STRIDE + 4 * STAGE_WIDTH)
#define TILE_STRIDE (TILE_S + 4)

struct Scores {  // what prepare made, and for pairs out of range what it was made of
    const input_t *query, *key;
    const float *v, *halves_of_query, *halves_of_key, *reciprocal_v, *line, *query_bound, *key_bound;
    int num_queries, num_keys, width, padded;
};

enum Way { BY_FOUR, BY_TWO, EXACT };

DEVICE Way way(const Scores& a, int n, int t0, int s0) {
    int query_blocks = (a.num_queries + ROWS - 1) / ROWS, key_blocks = (a.num_keys + ROWS - 1) / ROWS;
    float four = 0, two = 0, key_four = 0, key_two = 0;
    for (int i = t0 / ROWS; i < min(query_blocks, (t0 + TILE_T) / ROWS); i++) {
        four = fmaxf(four, a.query_bound[2 * (n * query_blocks + i)]);
        two = fmaxf(two, a.query_bound[2 * (n * query_blocks + i) + 1]);
    }
    for (int i = s0 / ROWS; i < min(key_blocks, (s0 + TILE_S) / ROWS); i++) {
        key_four = fmaxf(key_four, a.key_bound[2 * (n * key_blocks + i)]);
        key_two = fmaxf(key_two, a.key_bound[2 * (n * key_blocks + i) + 1]);
    }
    return four + key_four <= SAFE_PRODUCT ? BY_FOUR : two + key_two <= SAFE_PRODUCT ? BY_TWO : EXACT;
}

template <int WAY> DEVICE float add_group(float sum, float x, float y, float z, float w) {
    if (WAY == BY_TWO) return fmaf(z + w, reciprocal(z * w), fmaf(x + y, reciprocal(x * y), sum));
    float above = x + y, below = x * y;
    above = fmaf(above, z, below), below *= z;
    above = fmaf(above, w, below), below *= w;
    return fmaf(above, reciprocal(below), sum);
}

// The same from arguments instead of exponentials, v instead of its reciprocal
DEVICE float add_exactly(float sum, const float4& e, const float4& f, const float4& v) {
    float x = denominator(e.x, f.x, CUT_BY_FOUR), y = denominator(e.y, f.y, CUT_BY_FOUR);
    float z = denominator(e.z, f.z, CUT_BY_FOUR), w = denominator(e.w, f.w, CUT_BY_FOUR), xy = x * y, zw = z * w;
    float above = fmaf(fmaf(v.x, y, v.y * x), zw, fmaf(v.z, w, v.w * z) * xy);
    return fmaf(-2 * above, reciprocal(xy * zw), sum + ((v.x + v.y) + (v.z + v.w)));
}

// Fills a stage of both sides and of v; rows behind the last one hold anything, and nobody reads their scores
DEVICE void load_stage(float* stage, const Scores& a, int n, int t0, int s0, int d0) {
    int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS * 4, pitch = 2 * a.padded, at = row * pitch + chunk;
    const float* query = a.halves_of_query + ((long long)n * whole_tiles(a.num_queries) + t0) * pitch + 2 * d0;
    const float* key = a.halves_of_key + ((long long)n * whole_tiles(a.num_keys) + s0) * pitch + 2 * d0;
    float* to = stage + row * STAGE_STRIDE + chunk;
    if (2 * d0 + chunk < pitch) {
#pragma unroll
        for (int i = 0; i < TILE_T; i += COPY_ROWS) copy_later(to + i * STAGE_STRIDE, query + at + i * pitch);
#pragma unroll
        for (int i = 0; i < TILE_S; i += COPY_ROWS) copy_later(to + (TILE_T + i) * STAGE_STRIDE, key + at + i * pitch);
    }
    if (threadIdx.x < min(STAGE_WIDTH, a.padded - d0))
        copy_later(stage + (TILE_T + TILE_S) * STAGE_STRIDE + 4 * threadIdx.x,
                   a.reciprocal_v + ((long long)n * a.padded + d0 + threadIdx.x) * 4);
}

// Where a thread's pairs are: rows `row` + 8 i, columns `column` + 8 j and the next one
struct Place {
    int team, first_row, first_column, row, column;

    DEVICE Place() {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        team = warp / (WARPS_T * WARPS_S);
        first_row = warp / WARPS_S % WARPS_T * 32, first_column = warp % WARPS_S * 32;
        row = first_row + lane / 4, column = first_column + lane % 4 * 2;
    }
};

template <int WAY>
DEVICE void sum_fractions(float (&sum)[4][8], float* stages, const Scores& a, int n, int t0, int s0) {
    Place at;
    int lane = threadIdx.x % 32;
    // a product's four: high high, high low, low high, low low
    int left = (at.first_row + lane / 4 * 2 + lane % 4 / 2) * STAGE_STRIDE;
    int right = (TILE_T + at.first_column + lane / 4 * 2 + lane % 2) * STAGE_STRIDE;
    load_stage(stages, a, n, t0, s0, 0);
    for (int d0 = 0, turn = 0; d0 < a.padded; d0 += STAGE_WIDTH, turn ^= 1) {
        copies_done();
        block_barrier();  // this stage is written, and the other one is read
        int next = d0 + STAGE_WIDTH;
        if (next < a.padded) load_stage(stages + (turn ^ 1) * STAGE_SIZE, a, n, t0, s0, next);
        const float* stage = stages + turn * STAGE_SIZE + 2 * at.team * DEPTH;
        const float *e = stage + left, *f = stage + right;
        const float* c = stage + (TILE_T + TILE_S) * STAGE_STRIDE + 2 * at.team * DEPTH;
        int depth = min(DEPTH, a.padded - d0 - at.team * DEPTH);
#pragma unroll
        for (int d = 0; d < DEPTH; d += 4) {
            if (d >= depth) continue;
            float4 of_v[4], keys[2][2];
#pragma unroll
            for (int i = 0; i < 4; i++) of_v[i] = *(const float4*)(c + 4 * (d + i));
#pragma unroll
            for (int i = 0; i < 4; i++)
                keys[i / 2][i % 2] = *(const float4*)(f + 16 * (i / 2) * STAGE_STRIDE + 2 * d + i % 2 * 4);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                float4 query = *(const float4*)(e + 16 * m * STAGE_STRIDE + 2 * d);
                float4 next = *(const float4*)(e + 16 * m * STAGE_STRIDE + 2 * d + 4);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float4 &key = keys[j / 2][0], &other = keys[j / 2][1];
                    float4 x = multiply_add_16x8x4(query.x, query.y, j % 2 ? key.y : key.x, of_v[0]);
                    float4 y = multiply_add_16x8x4(query.z, query.w, j % 2 ? key.w : key.z, of_v[1]);
                    float4 z = multiply_add_16x8x4(next.x, next.y, j % 2 ? other.y : other.x, of_v[2]);
                    float4 w = multiply_add_16x8x4(next.z, next.w, j % 2 ? other.w : other.z, of_v[3]);
                    float *upper = sum[2 * m] + 2 * j, *lower = sum[2 * m + 1] + 2 * j;
                    upper[0] = add_group<WAY>(upper[0], x.x, y.x, z.x, w.x);
                    upper[1] = add_group<WAY>(upper[1], x.y, y.y, z.y, w.y);
                    lower[0] = add_group<WAY>(lower[0], x.z, y.z, z.z, w.z);
                    lower[1] = add_group<WAY>(lower[1], x.w, y.w, z.w, w.w);
                }
            }
        }
    }
    block_barrier();  // the stages are free for the tile
}

// The arguments themselves, for pairs out of range: rows of `STAGE_WIDTH`, then v
DEVICE void load_exact(float* stage, const Scores& a, int n, int t0, int s0, int d0) {
    for (int at = threadIdx.x; at < (TILE_T + TILE_S + 1) * STAGE_WIDTH; at += THREADS) {
        int row = at / STAGE_WIDTH, d = d0 + at % STAGE_WIDTH;
        long long t = (long long)n * a.num_queries + min(t0 + row, a.num_queries - 1);
        long long s = (long long)n * a.num_keys + min(s0 + row - TILE_T, a.num_keys - 1);
        float x = 0;
        if (d >= a.width) x = 0;
        else if (row < TILE_T) x = widen(a.query[t * a.width + d]);
        else if (row < TILE_T + TILE_S) x = widen(a.key[s * a.width + d]);
        else x = a.v[(long long)n * a.width + d];
        stage[row * STAGE_STRIDE + at % STAGE_WIDTH] = x;
    }
}

DEVICE void sum_exactly(float (&sum)[4][8], float* stage, const Scores& a, int n, int t0, int s0) {
    Place at;
    for (int d0 = 0; d0 < a.padded; d0 += STAGE_WIDTH) {
        load_exact(stage, a, n, t0, s0, d0);
        block_barrier();
        int depth = min(DEPTH, a.padded - d0 - at.team * DEPTH);
#pragma unroll 1
        for (int d = at.team * DEPTH; d < at.team * DEPTH + depth; d += 4) {
            float4 queries[4], v = *(const float4*)(stage + (TILE_T + TILE_S) * STAGE_STRIDE + d);
#pragma unroll
            for (int i = 0; i < 4; i++) queries[i] = *(const float4*)(stage + (at.row + 8 * i) * STAGE_STRIDE + d);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float4 key = *(const float4*)(stage + (TILE_T + at.column + j / 2 * 8 + j % 2) * STAGE_STRIDE + d);
#pragma unroll
                for (int i = 0; i < 4; i++) sum[i][j] = add_exactly(sum[i][j], queries[i], key, v);
            }
        }
        block_barrier();
    }
}

// The tile's scores into shared memory, [TILE_T, TILE_STRIDE], over what the stages held
DEVICE void score_tile(float* tile, float* stages, const Scores& a, int n, int t0, int s0) {
    float sum[4][8] = {};
    Way how = way(a, n, t0, s0);
    if (how == BY_FOUR) sum_fractions<BY_FOUR>(sum, stages, a, n, t0, s0);
    else if (how == BY_TWO) sum_fractions<BY_TWO>(sum, stages, a, n, t0, s0);
    else sum_exactly(sum, stages, a, n, t0, s0);
    float intercept = how == EXACT ? 0.0f : a.line[2 * n], slope = how == EXACT ? 1.0f : a.line[2 * n + 1];
    Place at;
    for (int turn = 0; turn < SPLIT; turn++) {
        if (turn == at.team) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float2* to = (float2*)(tile + (at.row + 8 * i) * TILE_STRIDE + at.column + 8 * j);
                    float2 before = {intercept, intercept};
                    if (turn) before = *to;
                    *to = {fmaf(slope, sum[i][2 * j], before.x), fmaf(slope, sum[i][2 * j + 1], before.y)};
                }
        }
        block_barrier();
    }
}
