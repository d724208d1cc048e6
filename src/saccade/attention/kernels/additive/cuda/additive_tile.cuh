// Scores of a tile of queries and keys: sum_d 1 / (c_d + E_td F_sd), four fractions to a reciprocal.
//
// A warp owns 32 x 32 pairs, a thread 8 x 4 of them; WARPS_T x WARPS_S warps make the tile and SPLIT such teams share
// the width. A term costs three operations of the multiply-add kind, whatever the number of fractions: its
// denominator, its factor of the common one, its part of the numerator.
//
// What limits the loop is reading registers, which lie in two banks, even and odd ones: three of one bank take longer. Four
// dimensions come as 16 bytes into four registers in turn, so the numbers of a query, a key and v for one dimension would
// share a bank. Keys' neighbouring dimensions are swapped in memory: theirs lie in the other one.
//
// RAW: nothing was prepared, and exponentials are taken here: a thread makes them of the arguments that it has copied, in
// their place. It is quicker where an entry has few tiles. Whether products may overflow is then seen stage by stage: the
// tile is begun anew in the safer way.

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
#define SAFE_QUERY 0x1p70f  // RAW: products of queries' parts of denominators, and of keys': together SAFE_PRODUCT
#define SAFE_KEY 0x1p50f

#if RAW
typedef input_t staged_t;
#else
typedef float staged_t;
#endif

struct Scores {  // what prepare made (RAW: null), and for pairs out of range what it was made of
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

DEVICE void copy_four_later(float* to, const staged_t* from) {
    if (sizeof(staged_t) == 4) copy_later(to, (const float*)from);
    else copy_eight_later(to, from);
}

// Whether products of denominators' parts, as many as share a reciprocal, are small enough
template <int WAY> DEVICE bool fit(const float (&x)[4], float most) {
    float two = x[0] * x[1], other = x[2] * x[3];
    return WAY == BY_FOUR ? two * other <= most : two <= most && other <= most;  // false for a NaN
}

// Fills a stage of both sides and of v; rows behind the last one repeat it, and nobody reads their scores.
// Made anew for each stage: the sums need the registers in between.
struct Loader {
    const staged_t *query, *key;
    const float *of_v, *powers;  // of all dimensions; RAW: in shared memory
    float* to;
    int last_query, last_key, row, d, padded;

    DEVICE Loader(float* stages, const float* folded, const Scores& a, int n, int t0, int s0) : padded(a.padded) {
        int thread = unknown(threadIdx.x);
        row = thread / QUARTERS, d = thread % QUARTERS * 4;
        long long queries = ((long long)n * a.num_queries + t0) * a.padded + d;
        long long keys = ((long long)n * a.num_keys + s0) * a.padded + d;
#if RAW
        query = a.query + queries, key = a.key + keys, of_v = folded + d, powers = folded + a.padded + d;
#else
        query = a.folded_query + queries, key = a.swapped_key + keys, of_v = a.reciprocal_v + (long long)n * a.padded + d;
#endif
        to = stages + row * STAGE_STRIDE + d;
        last_query = a.num_queries - 1 - t0, last_key = a.num_keys - 1 - s0;
    }
    DEVICE void start(int turn, int d0) const {
        if (d + d0 >= padded) return;
        float* stage = to + turn * STAGE_SIZE;
#pragma unroll
        for (int i = 0; i < TILE_T / COPY_ROWS; i++)
            copy_four_later(stage + i * COPY_ROWS * STAGE_STRIDE, query + d0 + min(row + i * COPY_ROWS, last_query) * padded);
        stage += TILE_T * STAGE_STRIDE;
#pragma unroll
        for (int i = 0; i < TILE_S / COPY_ROWS; i++)
            copy_four_later(stage + i * COPY_ROWS * STAGE_STRIDE, key + d0 + min(row + i * COPY_ROWS, last_key) * padded);
        if (!RAW && row == 0) copy_later(stage + TILE_S * STAGE_STRIDE, of_v + d0);
    }
    // RAW: what this thread has copied becomes exponentials; false: they may be too large
    template <int WAY> DEVICE bool finish(int turn, int d0) const {
        if (d + d0 >= padded) return true;
        float* stage = to + turn * STAGE_SIZE;
        float4 c = *(const float4*)(of_v + d0), by = *(const float4*)(powers + d0);
        float reciprocals[4] = {c.x, c.y, c.z, c.w}, factors[4] = {by.x, by.y, by.z, by.w};
        bool fits = true;
#pragma unroll
        for (int i = 0; i < (TILE_T + TILE_S) / COPY_ROWS; i++) {
            bool is_query = i < TILE_T / COPY_ROWS;
            float* at = stage + i * COPY_ROWS * STAGE_STRIDE;
            Four four = *(const Four*)at;
            float x[4], part[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[j] = power_of_two(factors[j] * widen(four.x[j])), part[j] = 1 + x[j];
                if (is_query) part[j] *= fabsf(reciprocals[j]), x[j] = factors[j] == 0 ? 0.0f : reciprocals[j] * x[j];
            }
            fits &= fit<WAY>(part, is_query ? SAFE_QUERY : SAFE_KEY);
            *(float4*)at = is_query ? float4{x[0], x[1], x[2], x[3]} : float4{x[1], x[0], x[3], x[2]};
        }
        if (row == 0) *(float4*)(stage + (TILE_T + TILE_S) * STAGE_STRIDE) = c;
        return fits;
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

// The fractions of a stage; unless WHOLE, only the first rows (every fourth one is a lane's) and columns (every eighth)
template <int WAY, bool WHOLE>
DEVICE void add_stage(
    float (&sum)[8][4], const float* e, const float* f, const float* c, int depth, int rows, int columns
) {
#pragma unroll 1
    for (int d = 0; d < depth; d += 4) {
        float4 keys[4], of_v = *(const float4*)(c + d);
#pragma unroll
        for (int j = 0; j < 4; j++) keys[j] = *(const float4*)(f + 8 * j * STAGE_STRIDE + d);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (!WHOLE && i >= rows) break;
            float4 query = *(const float4*)(e + 4 * i * STAGE_STRIDE + d);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (!WHOLE && j == 2 && columns <= 2) break;
                sum[i][j] = add_group<WAY>(sum[i][j], query, keys[j], of_v);
            }
        }
    }
}

// The first stage is on its way. False, for all threads: the tile has to be done in a safer way
template <int WAY>
DEVICE bool sum_fractions(float (&sum)[8][4], float* stages, const float* folded, const Scores& a, int n, int t0, int s0) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / (WARPS_T * WARPS_S);
    int row = warp / WARPS_S % WARPS_T * 32 + lane / 8, column = warp % WARPS_S * 32 + lane % 8;
    int rows = (a.num_queries - t0 - row / 32 * 32 + 3) / 4, columns = (a.num_keys - s0 - column / 32 * 32 + 7) / 8;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = 0;
    if (WAY == EXACT) {
        copies_done();
        block_barrier();  // nobody's copy comes over what is written now
        load_exact(stages, a, n, t0, s0, 0);
    }
    for (int d0 = 0, turn = 0; d0 < a.padded; d0 += STAGE_WIDTH, turn ^= 1) {
        copies_done();
        // a barrier: this stage is written, and the other one is read
        if (!RAW || WAY == EXACT) block_barrier();
        else if (block_any(!Loader(stages, folded, a, n, t0, s0).finish<WAY>(turn, d0))) return false;
        int next = d0 + STAGE_WIDTH;
        if (next < a.padded && WAY == EXACT) load_exact(stages + (turn ^ 1) * STAGE_SIZE, a, n, t0, s0, next);
        if (next < a.padded && WAY != EXACT) Loader(stages, folded, a, n, t0, s0).start(turn ^ 1, next);
        const float* stage = stages + turn * STAGE_SIZE + team * DEPTH;
        const float* e = stage + row * STAGE_STRIDE;
        const float* f = stage + (TILE_T + column) * STAGE_STRIDE;
        const float* c = stage + (TILE_T + TILE_S) * STAGE_STRIDE;
        int depth = min(DEPTH, a.padded - d0 - team * DEPTH);
        if (!RAW || (rows >= 8 && columns >= 4)) add_stage<WAY, true>(sum, e, f, c, depth, rows, columns);
        else add_stage<WAY, false>(sum, e, f, c, depth, rows, columns);
    }
    block_barrier();  // the stages are free for the tile
    return true;
}

// The tile's scores into shared memory, [TILE_T, TILE_STRIDE], over what the stages held (and teams' sums behind it).
// `folded`: RAW: room for what v says, 2 padded floats, two for each warp and one more.
DEVICE void score_tile(float* stages, float* folded, const Scores& a, int n, int t0, int s0) {
    float sum[8][4];
    Loader(stages, folded, a, n, t0, s0).start(0, 0);
#if RAW
    const float* v = a.v + (long long)n * a.width;
    float largest = largest_of(v, a.width), *parts = folded + 2 * a.padded;
    fold_all(folded, folded + a.padded, parts, v, largest, a.width, a.padded);
    block_barrier();
    Way how = largest < INFINITE ? BY_FOUR : EXACT;
    if (how == BY_FOUR && !sum_fractions<BY_FOUR>(sum, stages, folded, a, n, t0, s0)) {
        how = BY_TWO;
        Loader(stages, folded, a, n, t0, s0).start(0, 0);
        if (!sum_fractions<BY_TWO>(sum, stages, folded, a, n, t0, s0)) how = EXACT;
    }
    if (how == EXACT) sum_fractions<EXACT>(sum, stages, folded, a, n, t0, s0);
    Line line = line_of(parts);
#else
    Way how = way(a, n, t0, s0);
    if (how == BY_FOUR) sum_fractions<BY_FOUR>(sum, stages, folded, a, n, t0, s0);
    else if (how == BY_TWO) sum_fractions<BY_TWO>(sum, stages, folded, a, n, t0, s0);
    else sum_fractions<EXACT>(sum, stages, folded, a, n, t0, s0);
    Line line = {a.line[2 * n], a.line[2 * n + 1]};
#endif
    if (how == EXACT) line = {0, 1};
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / (WARPS_T * WARPS_S);
    int row = warp / WARPS_S % WARPS_T * 32 + lane / 8, column = warp % WARPS_S * 32 + lane % 8;
    float* mine = stages + (team * TILE_T + row) * TILE_STRIDE + column;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            mine[4 * i * TILE_STRIDE + 8 * j] = SPLIT == 1 ? fmaf(line.slope, sum[i][j], line.intercept) : sum[i][j];
    block_barrier();
    if (SPLIT == 1) return;
    for (int at = threadIdx.x * 4; at < TILE_T * TILE_S; at += THREADS * 4) {
        float4* to = (float4*)(stages + at / TILE_S * TILE_STRIDE + at % TILE_S);
        float4 total = {line.intercept, line.intercept, line.intercept, line.intercept};
#pragma unroll
        for (int i = 0; i < SPLIT; i++) {
            float4 more = to[i * TILE_T * TILE_STRIDE / 4];
            total.x = fmaf(line.slope, more.x, total.x), total.y = fmaf(line.slope, more.y, total.y);
            total.z = fmaf(line.slope, more.z, total.z), total.w = fmaf(line.slope, more.w, total.w);
        }
        *to = total;
    }
    block_barrier();
}
