// Exponentials once per query and key, v folded in, and how large a product of them can get.
//
//     v tanh(q + k) = v - 2 v / (1 + e^2q e^2k) = v - 2 V / (c + (c e^2q) e^2k),  c = V / v,  V = max |v|
//
// so that the fractions of one score are plain reciprocals. A dimension with v = 0 (or below 2^-30 V) has
// e^2q set to 0 and c to 2^12: the same for every pair, and taken out again by the constant.
//
// v tanh(x) = -v tanh(-x): signs are turned so that v's alternate. The fractions of a score then nearly cancel as they
// are summed, and the sum is rounded where it is small; it costs nothing, and halves the error.

#define ROWS 32  // rows that share one bound
#define IGNORED 4096.0f
#define SAFE_PRODUCT 120.0f  // bits: a product of denominators below 2^120, and its numerator, are ordinary floats

DEVICE float turn(float v, int d) { return (v < 0) != (d % 2 == 1) ? -1.0f : 1.0f; }

DEVICE void fold(float v, float largest, float& c, float& factor) {
    float share = v / largest;
    bool counts = fabsf(share) > 0x1p-30f;
    c = counts ? 1 / share : IGNORED;
    factor = counts ? c : 0.0f;
}

DEVICE float largest_of(const float* v, int width) {  // by every warp for itself; infinite where one is no number
    float largest = 0;
    for (int d = threadIdx.x % 32; d < width; d += 32) largest = fmaxf(largest, or_infinite(fabsf(v[d])));
    largest = warp_max(largest);
    return largest > 0 ? largest : 1.0f;
}

struct Line {  // score = intercept + slope * (sum of reciprocals)
    float intercept, slope;
};

// c of every dimension, and by what log2 of its exponential is its argument, if anybody wants to know (0: it is ignored).
// `parts`: two floats for each warp and one more, from which line_of is made behind a barrier.
DEVICE void fold_all(float* c, float* powers, float* parts, const float* v, float largest, int width, int padded) {
    float sum = 0, ignored = 0;
    for (int d = threadIdx.x; d < padded; d += blockDim.x) {
        float factor, sign = d < width ? turn(v[d], d) : 1.0f, value = d < width ? v[d] * sign : 0.0f;
        fold(value, largest, c[d], factor);
        sum += value, ignored += factor == 0;
        if (powers) powers[d] = factor == 0 ? 0.0f : TWO_LOG2_E * sign;
    }
    sum = 0.5f * (sum + shuffle_xor(sum, 1));  // neighbours have opposite signs: what is summed is small from the start
    sum = warp_sum(sum), ignored = warp_sum(ignored);
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) parts[2 * warp + 1] = sum, parts[2 * warp + 2] = ignored;
    if (threadIdx.x == 0) parts[0] = largest;
}

DEVICE Line line_of(const float* parts) {
    float sum = 0, ignored = 0, largest = parts[0];
    for (int warp = 0; warp < blockDim.x / 32; warp++) sum += parts[2 * warp + 1], ignored += parts[2 * warp + 2];
    return {sum + 2 * largest * ignored / IGNORED, -2 * largest};
}

struct alignas(4 * sizeof(input_t)) Four { input_t x[4]; };

// Four arguments, of which the first `count` are there, at once if all fours are aligned
DEVICE void load_four(float (&x)[4], const input_t* from, int count, bool aligned) {
    Four four = {};
    if (aligned && count > 0) four = *(const Four*)from;
#pragma unroll
    for (int i = 0; i < 4 && !aligned; i++)
        if (i < count) four.x[i] = from[i];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = i < count ? widen(four.x[i]) : 0.0f;
}

// e^2x of ROWS rows, padded to whole groups of four, and log2 of what a group (a pair) can multiply to. Queries are
// FOLDED: times what v says of a dimension; keys have their neighbouring dimensions swapped (additive_tile.cuh says why).
// A thread keeps to a group: what v says of it is worked out once.
template <bool FOLDED>
DEVICE void exponentials(
    const input_t* x, float* made, const float* v, float largest, float* bound, int first, int rows, int width,
    int padded, float* scratch
) {
    int groups = padded / 4, span = min(groups, (int)blockDim.x), lanes = blockDim.x / span;
    int last = min(first + ROWS, rows);
    float of_four = 0, of_two = 0;
    bool aligned = width % 4 == 0 && (uint64)x % sizeof(Four) == 0;
    for (int d = threadIdx.x % span * 4; d < padded && threadIdx.x < span * lanes; d += span * 4) {
        float sign[4], factor[4], extra[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float one = d + i < width ? v[d + i] : 0.0f, c = 1;
            sign[i] = turn(one, d + i), factor[i] = 1;
            if (FOLDED) fold(one * sign[i], largest, c, factor[i]);
            extra[i] = FOLDED ? log2f(fabsf(c)) + 1 : 0.0f;
        }
#pragma unroll 4
        for (int row = first + threadIdx.x / span; row < last; row += lanes) {
            float four[4], bits[4];
            load_four(four, x + (long long)row * width + d, width - d, aligned);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float argument = four[i] * sign[i];
                bits[i] = fmaxf(or_infinite(argument) * TWO_LOG2_E, 0.0f) + extra[i];
                four[i] = factor[i] == 0 ? 0.0f : factor[i] * expf(2 * argument);
            }
            float4* to = (float4*)(made + (long long)row * padded + d);
            *to = FOLDED ? float4{four[0], four[1], four[2], four[3]} : float4{four[1], four[0], four[3], four[2]};
            of_two = fmaxf(of_two, fmaxf(bits[0] + bits[1], bits[2] + bits[3]));
            of_four = fmaxf(of_four, bits[0] + bits[1] + bits[2] + bits[3]);
        }
    }
    of_two = block_max(of_two, scratch);
    of_four = block_max(of_four, scratch);
    if (threadIdx.x == 0) bound[0] = of_four, bound[1] = of_two;
}

// grid: (row blocks of the queries, then of the keys; N).
KERNEL(512, 2) prepare(
    const input_t* query, const input_t* key, const float* v, float* folded_query, float* swapped_key,
    float* reciprocal_v, float* line, float* query_bound, float* key_bound, int num_queries, int num_keys, int width,
    int padded, Beyond beyond
) {
    SHARED(scratch);
    if (beyond.leaves(blockIdx.y)) return;
    int n = blockIdx.y, query_blocks = (num_queries + ROWS - 1) / ROWS, key_blocks = (num_keys + ROWS - 1) / ROWS;
    int block = blockIdx.x - query_blocks;
    v += (long long)n * width;
    if (block >= 0) {
        long long at = (long long)n * num_keys;
        exponentials<false>(key + at * width, swapped_key + at * padded, v, 1, key_bound + (n * key_blocks + block) * 2,
                            block * ROWS, num_keys, width, padded, scratch);
        return;
    }
    float largest = largest_of(v, width);
    if (blockIdx.x == 0) {
        fold_all(reciprocal_v + (long long)n * padded, nullptr, scratch, v, largest, width, padded);
        block_barrier();
        Line made = line_of(scratch);
        block_barrier();
        if (threadIdx.x == 0) line[2 * n] = made.intercept, line[2 * n + 1] = made.slope;
    }
    long long at = (long long)n * num_queries;
    float* bound = query_bound + (n * query_blocks + blockIdx.x) * 2;
    exponentials<true>(query + at * width, folded_query + at * padded, v, largest, bound, blockIdx.x * ROWS, num_queries,
                       width, padded, scratch);
    if (threadIdx.x == 0 && !(largest < INFINITE)) bound[0] = bound[1] = INFINITE;
}
