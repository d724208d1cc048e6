// Scores of a tile of queries and keys: sum_d 1 / (c_d + E_td F_sd), four fractions to a reciprocal.
//
// A warp owns 32 x 32 pairs, a thread 8 x 4 of them; WARPS_T x WARPS_S warps make the tile and SPLIT such teams share
// the width. A term costs three operations of the multiply-add kind, whatever the number of fractions: its
// denominator, its factor of the common one, its part of the numerator.
//
// What limits the loop is reading registers, which lie in two banks, even and odd ones: three of one bank take longer. Four
// dimensions come as 16 bytes into four registers in turn, so the numbers of a query, a key and v for one dimension would
// share a bank. Keys' neighbouring dimensions are swapped in memory: theirs lie in the other one.

#define TILE_T (32 * WARPS_T)
#define TILE_S (32 * WARPS_S)
#define THREADS (32 * WARPS_T * WARPS_S * SPLIT)
#define DEPTH 16                      // dimensions of a team at a time
#define STAGE_WIDTH (DEPTH * SPLIT)
#define QUARTERS (STAGE_WIDTH / 4)
#define COPY_ROWS (THREADS / QUARTERS)
#define STAGE_STRIDE (STAGE_WIDTH + 4)  // rows in turn lie four banks apart: no two of eight meet
#define STAGE_SIZE ((TILE_T + TILE_S) * STAGE_STRIDE + STAGE_WIDTH)
#define TILE_STRIDE (TILE_S + 4)

struct Scores {  // what prepare made, and for pairs out of range what it was made of
    const input_t *query, *key;
    const float *v, *folded_query, *swapped_key, *reciprocal_v, *line, *query_bound, *key_bound;
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

template <int WAY> DEVICE float add_group(float sum, const float4& e, const float4& f, const float4& c) {
    if (WAY == EXACT) {  // arguments, none of them swapped, instead of exponentials; v instead of its reciprocal
        float x = denominator(e.x, f.x, CUT_BY_FOUR), y = denominator(e.y, f.y, CUT_BY_FOUR);
        float z = denominator(e.z, f.z, CUT_BY_FOUR), w = denominator(e.w, f.w, CUT_BY_FOUR), xy = x * y, zw = z * w;
        float above = fmaf(fmaf(c.x, y, c.y * x), zw, fmaf(c.z, w, c.w * z) * xy);
        return fmaf(-2 * above, reciprocal(xy * zw), sum + ((c.x + c.y) + (c.z + c.w)));
    }
    float x = fmaf(e.x, f.y, c.x), y = fmaf(e.y, f.x, c.y), z = fmaf(e.z, f.w, c.z), w = fmaf(e.w, f.z, c.w);
    if (WAY == BY_TWO) return fmaf(z + w, reciprocal(z * w), fmaf(x + y, reciprocal(x * y), sum));
    float above = x + y, below = x * y;
    above = fmaf(above, z, below), below *= z;
    above = fmaf(above, w, below), below *= w;
    return fmaf(above, reciprocal(below), sum);
}

// Fills a stage of both sides and of v; rows behind the last one repeat it, and nobody reads their scores
struct Loader {
    const float *query, *key, *of_v;
    float* to;
    int last_query, last_key, d;

    DEVICE Loader(float* stages, const Scores& a, int n, int t0, int s0) {
        int row = threadIdx.x / QUARTERS;
        d = threadIdx.x % QUARTERS * 4;
        query = a.folded_query + ((long long)n * a.num_queries + t0) * a.padded + d;
        key = a.swapped_key + ((long long)n * a.num_keys + s0) * a.padded + d;
        of_v = a.reciprocal_v + (long long)n * a.padded + d;
        to = stages + row * STAGE_STRIDE + d;
        last_query = a.num_queries - 1 - t0, last_key = a.num_keys - 1 - s0;
    }
    DEVICE void operator()(int turn, int d0, int padded) const {
        if (d + d0 >= padded) return;
        float* stage = to + turn * STAGE_SIZE;
        int row = threadIdx.x / QUARTERS;
#pragma unroll
        for (int i = 0; i < TILE_T / COPY_ROWS; i++)
            copy_later(stage + i * COPY_ROWS * STAGE_STRIDE, query + d0 + min(row + i * COPY_ROWS, last_query) * padded);
        stage += TILE_T * STAGE_STRIDE;
#pragma unroll
        for (int i = 0; i < TILE_S / COPY_ROWS; i++)
            copy_later(stage + i * COPY_ROWS * STAGE_STRIDE, key + d0 + min(row + i * COPY_ROWS, last_key) * padded);
        if (row == 0) copy_later(stage + TILE_S * STAGE_STRIDE, of_v + d0);
    }
};

// The same from the arguments themselves, for pairs out of range
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

template <int WAY>
DEVICE void sum_fractions(float (&sum)[8][4], float* stages, const Scores& a, int n, int t0, int s0) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / (WARPS_T * WARPS_S);
    int row = warp / WARPS_S % WARPS_T * 32 + lane / 8, column = warp % WARPS_S * 32 + lane % 8;
    Loader load(stages, a, n, t0, s0);
    if (WAY == EXACT) load_exact(stages, a, n, t0, s0, 0);
    else load(0, 0, a.padded);
    for (int d0 = 0, turn = 0; d0 < a.padded; d0 += STAGE_WIDTH, turn ^= 1) {
        copies_done();
        block_barrier();  // this stage is written, and the other one is read
        int next = d0 + STAGE_WIDTH;
        if (next < a.padded && WAY == EXACT) load_exact(stages + (turn ^ 1) * STAGE_SIZE, a, n, t0, s0, next);
        if (next < a.padded && WAY != EXACT) load(turn ^ 1, next, a.padded);
        const float* stage = stages + turn * STAGE_SIZE + team * DEPTH;
        const float* e = stage + row * STAGE_STRIDE;
        const float* f = stage + (TILE_T + column) * STAGE_STRIDE;
        const float* c = stage + (TILE_T + TILE_S) * STAGE_STRIDE;
        int depth = min(DEPTH, a.padded - d0 - team * DEPTH);
#pragma unroll 1
        for (int d = 0; d < depth; d += 4) {
            float4 keys[4], of_v = *(const float4*)(c + d);
#pragma unroll
            for (int j = 0; j < 4; j++) keys[j] = *(const float4*)(f + 8 * j * STAGE_STRIDE + d);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float4 query = *(const float4*)(e + 4 * i * STAGE_STRIDE + d);
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] = add_group<WAY>(sum[i][j], query, keys[j], of_v);
            }
        }
    }
    block_barrier();  // the stages are free for the tile
}

// The tile's scores into shared memory, [TILE_T, TILE_STRIDE], over what the stages held
DEVICE void score_tile(float* tile, float* stages, const Scores& a, int n, int t0, int s0) {
    float sum[8][4] = {};
    Way how = way(a, n, t0, s0);
    if (how == BY_FOUR) sum_fractions<BY_FOUR>(sum, stages, a, n, t0, s0);
    else if (how == BY_TWO) sum_fractions<BY_TWO>(sum, stages, a, n, t0, s0);
    else sum_fractions<EXACT>(sum, stages, a, n, t0, s0);
    float intercept = how == EXACT ? 0.0f : a.line[2 * n], slope = how == EXACT ? 1.0f : a.line[2 * n + 1];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / (WARPS_T * WARPS_S);
    int row = warp / WARPS_S % WARPS_T * 32 + lane / 8, column = warp % WARPS_S * 32 + lane % 8;
    for (int turn = 0; turn < SPLIT; turn++) {
        if (turn == team) {
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float* to = tile + (row + 4 * i) * TILE_STRIDE + column + 8 * j;
                    *to = fmaf(slope, sum[i][j], turn ? *to : intercept);
                }
        }
        block_barrier();
    }
}
