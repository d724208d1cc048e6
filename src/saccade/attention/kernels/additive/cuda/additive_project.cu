// W q of few rows, in parts of the width, [parts, N, A] float32: whoever reads it adds them up. The next kernel may begin
// beside it. grid: (outputs / 32, rows / 64, parts); a part has `chunk` dimensions, in whole stages.
//
// The tensor cores multiply halves of ten bits: three products (high high + high low + low high) carry 21 bits of float32,
// 16-bit numbers fit into one. They cut what they add up: high products start anew every 16 dimensions and are added by
// rounded additions; what the low halves give is too small for that to matter. Inside a product dimensions may stand in any
// order: of 16 a lane has four in turn, and reads them at once.

#define QUERY_ROWS 64
#define OUTPUTS 32
#define DEPTH 64
#define STAGES 4
#define ROW_STRIDE (DEPTH + 16)  // lanes that read together find all banks
#define STAGE_SIZE ((QUERY_ROWS + OUTPUTS) * ROW_STRIDE)
#define AT_ONCE (256 / (DEPTH / PIECE))  // rows that are fetched at once
#define TEAMS 2                  // of four warps, with half of each stage's dimensions

// Four dimensions in their places for two steps of eight, high and low halves
template <int PLACES>
DEVICE void take_apart(float (&high)[2][PLACES], float (&low)[2][PLACES], const float4& x, int place) {
    const float given[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float one = INPUT == 0 ? to_ten_bits(given[i]) : given[i];
        high[i / 2][place + i % 2 * (PLACES / 2)] = one, low[i / 2][place + i % 2 * (PLACES / 2)] = given[i] - one;
    }
}

struct Projection {
    const input_t *query, *weight;  // [N, D], [A, D]
    float* output;                  // [parts, N, A]
    int num_rows, num_outputs, width, chunk;
};

// As many registers as leave room for a block of `step_beside`
KERNEL(640, 1) project(Projection a) {
    SHARED(memory);
    const input_t *query = a.query, *weight = a.weight;
    int num_rows = a.num_rows, num_outputs = a.num_outputs, width = a.width;
    input_t* stages = (input_t*)memory;
    let_next_begin();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / 4;
    int n0 = blockIdx.y * QUERY_ROWS, out0 = blockIdx.x * OUTPUTS;
    int first = blockIdx.z * a.chunk, last = min(first + a.chunk, width);
    int own_row = threadIdx.x / (DEPTH / PIECE), own_d = threadIdx.x % (DEPTH / PIECE) * PIECE;
    const input_t* from_query = query + (long long)(n0 + own_row) * width;
    const input_t* from_weight = weight + (long long)(out0 + own_row) * width;
    bool whole = width % PIECE == 0 && (uint64)query % 16 == 0 && (uint64)weight % 16 == 0;
    auto stage_of = [&](int d0) { return stages + (d0 - first) / DEPTH % STAGES * STAGE_SIZE; };
    auto fetch = [&](int d0) {  // zeros behind the width; what is behind the last row or output nobody reads
        int d = d0 + own_d;
        input_t* to = stage_of(d0) + own_row * ROW_STRIDE + own_d;
        if (d0 < last && whole) {
#pragma unroll
            for (int i = 0; i < QUERY_ROWS + OUTPUTS; i += AT_ONCE) {
                int j = i - OUTPUTS;  // weights first
                if (j < 0 ? out0 + own_row + i >= num_outputs : n0 + own_row + j >= num_rows) continue;
                input_t* there = to + (j < 0 ? QUERY_ROWS + i : j) * ROW_STRIDE;
                const input_t* from = j < 0 ? from_weight + i * width : from_query + j * width;
                if (d < width) copy_later((float*)there, (const float*)(from + d));
                else *(float4*)there = {0, 0, 0, 0};
            }
        } else if (d0 < last) {
#pragma unroll 1
            for (int i = 0; i < QUERY_ROWS + OUTPUTS; i += AT_ONCE) {
                int j = i - QUERY_ROWS;
                if (j < 0 ? n0 + own_row + i >= num_rows : out0 + own_row + j >= num_outputs) continue;
                const input_t* from = j < 0 ? from_query + i * width : from_weight + j * width;
#pragma unroll 1
                for (int k = 0; k < PIECE; k++) to[i * ROW_STRIDE + k] = d + k < width ? from[d + k] : (input_t)0;
            }
        }
        copies_grouped();
    };
#pragma unroll
    for (int i = 0; i < STAGES; i++) fetch(first + i * DEPTH);
    int row = warp % 2 * 32 + lane / 4, out = warp / 2 % 2 * 16 + lane / 4;
    float sum[2][2][4] = {}, rest[2][2][4] = {};  // 16 rows x 8 outputs, twice each; products with low halves apart
    for (int d0 = first; d0 < last; d0 += DEPTH) {
        groups_done_but<STAGES - 1>();
        block_barrier();
        const input_t* stage = stage_of(d0) + team * (DEPTH / TEAMS) + lane % 4 * 4;
        const input_t *queries = stage + row * ROW_STRIDE, *weights = stage + (QUERY_ROWS + out) * ROW_STRIDE;
#pragma unroll 1
        for (int d = 0; d < DEPTH / TEAMS; d += 16) {
            float high_q[2][2][4], low_q[2][2][4], high_w[2][2][2], low_w[2][2][2], part[2][2][4] = {};
#pragma unroll
            for (int i = 0; i < 4; i++)
                take_apart<4>(high_q[i / 2], low_q[i / 2], four(queries + 8 * i * ROW_STRIDE, d, DEPTH, true), i % 2);
#pragma unroll
            for (int j = 0; j < 2; j++)
                take_apart<2>(high_w[j], low_w[j], four(weights + 8 * j * ROW_STRIDE, d, DEPTH, true), 0);
#pragma unroll
            for (int step = 0; step < 2; step++)
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        multiply_add_16x8x8(part[i][j], high_q[i][step], high_w[j][step]);
                        if (INPUT == 0) multiply_add_16x8x8(rest[i][j], low_q[i][step], high_w[j][step]);
                        if (INPUT == 0) multiply_add_16x8x8(rest[i][j], high_q[i][step], low_w[j][step]);
                    }
#pragma unroll
            for (int at = 0; at < 16; at++) sum[at / 8][at / 4 % 2][at % 4] += part[at / 8][at / 4 % 2][at % 4];
        }
        if (d0 + STAGES * DEPTH < last) block_barrier();  // nobody reads what is written over
        fetch(d0 + STAGES * DEPTH);
    }
    block_barrier();
    float* given = memory + warp % 4 * 512 + lane;  // each team ends half of the rows: what the other found for them
    float mine[8];
#pragma unroll
    for (int at = 0; at < 8; at++) {
        int j = at / 4, i = at % 4;
        float top = sum[0][j][i] + rest[0][j][i], bottom = sum[1][j][i] + rest[1][j][i];
        given[(team ? at : 8 + at) * 32] = team ? top : bottom;
        mine[at] = team ? bottom : top;
    }
    block_barrier();
    int n1 = n0 + row + 16 * team, o1 = out0 + warp / 2 % 2 * 16 + lane % 4 * 2;
    auto write = [&](int at, float x) {
        int n = n1 + at % 4 / 2 * 8, o = o1 + at / 4 * 8 + at % 2;
        bool wanted = n < num_rows && o < num_outputs;
        if (wanted) a.output[((long long)blockIdx.z * num_rows + n) * num_outputs + o] = x;
        return wanted;
    };
    bool finite = true;
#pragma unroll
    for (int at = 0; at < 8; at++) {
        float x = mine[at] + given[(8 * team + at) * 32];
        finite &= !write(at, x) || fabsf(x) < INFINITE;
    }
    if (!finite)  // halves can't carry what is infinite: the sums as they are written
#pragma unroll 1
        for (int at = 0; at < 8; at++) {
            int n = min(n1 + at % 4 / 2 * 8, num_rows - 1), o = min(o1 + at / 4 * 8 + at % 2, num_outputs - 1);
            float x = 0;
#pragma unroll 1
            for (int d = first; d < last; d++)
                x = fmaf(widen(query[(long long)n * width + d]), widen(weight[(long long)o * width + d]), x);
            write(at, x);
        }
}
