// One query against its keys: what a recurrent decoder asks at every step. Bound by memory: forward, a block for each (or
// several, which share the values) reads every key and value once; backward too, and writes their gradients.
//
// Here an exponential serves one pair only, so it is taken of the sum: w = 1 / (1 + 2^z), z = 2 log2(e) (q + k). With z
// cut at 30, where w < 2^-30, four denominators multiply to at most 2^120 and share a reciprocal.

#define THREADS 256      // of a block of the backward pass
#define MANY_THREADS 512  // of one forward: more loads are on their way at once
#define AHEAD 8           // values a thread fetches before it knows their weights
#define PIECE (int)(16 / sizeof(input_t))  // numbers that are copied at a time

DEVICE float denominator(float q, float k) { return denominator(q, k, CUT_BY_FOUR); }

// Four numbers of a row, zeros behind its end; `whole`: rows are whole groups of four, and lie where 16 bytes can be read
DEVICE float4 four(const input_t* row, int d, int width, bool whole) {
#if INPUT == 0
    if (whole) return *(const float4*)(row + d);
#else
    if (whole) {
        uint64 bits = *(const uint64*)(row + d);
        return {widen((uint16)bits), widen((uint16)(bits >> 16)), widen((uint16)(bits >> 32)), widen((uint16)(bits >> 48))};
    }
#endif
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = d + i < width ? widen(row[d + i]) : 0.0f;
    return {x[0], x[1], x[2], x[3]};
}
DEVICE bool is_whole(const void* row, int width) { return width % 4 == 0 && (uint64)row % 16 == 0; }

// v·tanh(q + k) of four dimensions
DEVICE float score_of(const float4& q, const float4& k, const float4& v) {
    float x = denominator(q.x, k.x), y = denominator(q.y, k.y), z = denominator(q.z, k.z), w = denominator(q.w, k.w);
    float xy = x * y, zw = z * w, above = fmaf(fmaf(v.x, y, v.y * x), zw, fmaf(v.z, w, v.w * z) * xy);
    return fmaf(-2 * above, reciprocal(xy * zw), (v.x + v.y) + (v.z + v.w));
}

struct Step {
    const void* query;                   // [N, A], or float32 [parts, N, A], to be summed
    const input_t *key, *value;          // [N, S, A], [N, S, D]
    const void* v;                       // [N or 1, A]
    const long long* length;             // [N]: keys from there on don't exist; null: all do
    input_t* output;                     // [N, D]
    float* weight;                       // [N, S], before dropout; may be null
    int num_keys, width, value_width, v_stride, v_is_wide, parts;  // parts 0: the query is one, of the inputs' type
    int holds;                           // the keys fit shared memory, and come in pieces of 16 bytes
    Allowed allowed;
    Drawing drawing;
};

// Shared memory: query and v (padded to fours), sums of values, scores, weights, keys. grid: (N, parts of the values'
// width). Keys and values are on their way before the query is there.
KERNEL(MANY_THREADS, 1) step(Step a) {
    SHARED(q);
    int padded = (a.width + 3) / 4 * 4, n = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float *of_v = q + padded, *sums = of_v + padded, *score = sums + 4 * MANY_THREADS, *share = score + a.num_keys;
    input_t* held = (input_t*)(score + (2 * a.num_keys + 3) / 4 * 4);
    int num_keys = a.length ? (int)max(0ll, min(a.length[n], (long long)a.num_keys)) : a.num_keys;
    const input_t* key = a.key + (long long)n * a.num_keys * a.width;
    bool whole = is_whole(a.key, a.width), whole_values = is_whole(a.value, a.value_width);
    if (a.holds)
        for (int i = threadIdx.x * PIECE; i < num_keys * a.width; i += MANY_THREADS * PIECE)
            copy_later((float*)(held + i), (const float*)(key + i));

    int all_quads = (a.value_width + 3) / 4, most = (all_quads + gridDim.y - 1) / gridDim.y, before = blockIdx.y * most;
    int quads = min(most, all_quads - before), columns = min(quads, MANY_THREADS), groups = MANY_THREADS / columns;
    int column = threadIdx.x % columns, group = threadIdx.x / columns, value_width = a.value_width - 4 * before;
    const input_t* value = a.value + (long long)n * a.num_keys * a.value_width + 4 * before;
    float4 ahead[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        int s = group + i * groups;
        ahead[i] = {0, 0, 0, 0};
        if (group < groups && s < num_keys)
            ahead[i] = four(value + (long long)s * a.value_width, 4 * column, value_width, whole_values);
    }
    wait_for_before();
    for (int d = threadIdx.x; d < padded; d += MANY_THREADS) {
        long long at = (long long)n * a.v_stride + d, of_query = (long long)n * a.width + d;
        float x = 0;
        if (d < a.width && !a.parts) x = widen(((const input_t*)a.query)[of_query]);
        if (d < a.width)
#pragma unroll 4
            for (int part = 0; part < a.parts; part++)
                x += ((const float*)a.query)[(long long)part * gridDim.x * a.width + of_query];
        q[d] = x;
        of_v[d] = d >= a.width ? 0.0f : a.v_is_wide ? ((const float*)a.v)[at] : widen(((const input_t*)a.v)[at]);
    }
    copies_done();
    block_barrier();
    auto find_scores = [&](const input_t* keys, bool in_fours) {
        for (int s = warp; s < num_keys; s += MANY_THREADS / 16) {  // two keys at a time
            int t = s + MANY_THREADS / 32;
            bool may = a.allowed(n, 0, s), may_too = t < num_keys && a.allowed(n, 0, t);
            const input_t *one = keys + (long long)s * a.width, *other = keys + (long long)(may_too ? t : s) * a.width;
            float sum = 0, sum_too = 0;
            if (may || may_too)
#pragma unroll 2
                for (int d = 4 * lane; d < a.width; d += 128) {
                    float4 k = four(one, d, a.width, in_fours), k_too = four(other, d, a.width, in_fours);
                    float4 of_q = *(const float4*)(q + d), to = *(const float4*)(of_v + d);
                    sum += score_of(of_q, k, to), sum_too += score_of(of_q, k_too, to);
                }
            sum = warp_sum(sum), sum_too = warp_sum(sum_too);
            if (lane == 0) score[s] = may ? sum : -INFINITE;
            if (lane == 0 && t < num_keys) score[t] = may_too ? sum_too : -INFINITE;
        }
    };
    if (a.holds) find_scores(held, true);
    else find_scores(key, whole);
    block_barrier();
    float best = -INFINITE, total = 0;
    for (int s = lane; s < num_keys; s += 32) best = fmaxf(best, score[s]);
    best = warp_max(best);
    best = best == -INFINITE ? 0.0f : best;
    for (int s = lane; s < num_keys; s += 32) total += expf(score[s] - best);
    total = warp_sum(total);
    float factor = total == 0 ? 0.0f : 1 / total;
    for (int s = threadIdx.x; s < a.num_keys; s += MANY_THREADS) {
        float one = s < num_keys ? expf(score[s] - best) * factor : 0.0f;
        if (a.weight && blockIdx.y == 0) a.weight[(long long)n * a.num_keys + s] = one;
        share[s] = one * a.drawing(n, 0, s);
    }
    block_barrier();
    for (int first = 0; first < quads; first += columns) {
        float4 sum = {0, 0, 0, 0};
        auto add = [&](int s, const float4& x) {
            float w = share[s];  // what has no weight may be anything
            if (w != 0) sum = {fmaf(w, x.x, sum.x), fmaf(w, x.y, sum.y), fmaf(w, x.z, sum.z), fmaf(w, x.w, sum.w)};
        };
        auto fetched = [&](int s) {
            return four(value + (long long)s * a.value_width, 4 * (first + column), value_width, whole_values);
        };
        bool mine = group < groups && first + column < quads;
        if (mine) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (group + i * groups < num_keys) add(group + i * groups, first ? fetched(group + i * groups) : ahead[i]);
#pragma unroll 4
            for (int s = group + AHEAD * groups; s < num_keys; s += groups) add(s, fetched(s));
        }
        *(float4*)(sums + 4 * threadIdx.x) = sum;
        block_barrier();
        if (mine && group == 0) {
            for (int i = 1; i < groups; i++) {
                float4 x = *(const float4*)(sums + 4 * (threadIdx.x + i * columns));
                sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
            }
            float x[4] = {sum.x, sum.y, sum.z, sum.w};
            for (int i = 0, d = 4 * (first + column); i < 4 && d + i < value_width; i++)
                a.output[(long long)n * a.value_width + 4 * before + d + i] = narrow(x[i]);
        }
        block_barrier();
    }
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
