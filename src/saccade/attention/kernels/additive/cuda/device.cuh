// What the kernels ask of the machine, one small function each. Tests compile the kernels for the CPU with the same
// names behind HOST_THREADS (tests/support/cpp/host_threads.hpp), so that they run without an accelerator.
#ifdef HOST_THREADS
#include "host_threads.hpp"
#else
#define DEVICE __device__ __forceinline__
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define SHARED(name) extern __shared__ __align__(16) float name[]

typedef unsigned int uint32;
typedef unsigned short uint16;
typedef unsigned long long uint64;

DEVICE float reciprocal(float x) {  // one unit in the last place
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float minimum(float x, float y) {  // a NaN stays one
    float z;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}
DEVICE float from_half(uint16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
DEVICE uint16 to_half(float x) {
    uint16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
DEVICE uint16 to_bfloat(float x) {
    uint16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
// 16 bytes to shared memory while the arithmetic goes on
DEVICE void copy_later(float* to, const float* from) {
    uint32 address = (uint32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
}
DEVICE void copy_eight_later(float* to, const void* from) {  // bytes
    uint32 address = (uint32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(address), "l"(from));
}
DEVICE void copies_done() {
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}
DEVICE void copies_grouped() { asm volatile("cp.async.commit_group;"); }
template <int LEFT>
DEVICE void groups_done_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
// Two kernels one behind the other: the second may begin, and waits for the first before it reads what that made
DEVICE void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
DEVICE void wait_for_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Blocks of a cluster write into each other's shared memory, once all have arrived, and read what was written once all have
// arrived again. A cluster is as long as the grid along y: a block's rank in it is blockIdx.y.
DEVICE void cluster_begin() {  // to arrive with nothing written yet
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;");
#endif
}
DEVICE void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
DEVICE void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
DEVICE void write_to_rank(int rank, float* to, float x) {
#if __CUDA_ARCH__ >= 900
    uint32 address = (uint32)__cvta_generic_to_shared(to), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
#endif
}
// c += a b on the tensor cores, 16 x 8 x 8, operands cut to TF32 (a 10-bit mantissa)
DEVICE void multiply_add_16x8x8(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}
DEVICE float shuffle_xor(float x, int lane) { return __shfl_xor_sync(0xffffffffu, x, lane); }
DEVICE void raise(float* to, float x) { atomicMax((int*)to, __float_as_int(x)); }  // x >= 0: its bits are in order
DEVICE void add_to(float* to, float x) { atomicAdd(to, x); }  // needn't wait for what is there
DEVICE void block_barrier() { __syncthreads(); }
DEVICE bool block_any(bool mine) { return __syncthreads_or(mine); }
DEVICE void warp_barrier() { __syncwarp(); }
#endif

#define INFINITE __int_as_float(0x7f800000)
#define TWO_LOG2_E 2.885390081777927f

// Entries whose range is known to be small (range[2 n] + range[2 n + 1] <= limit) are somebody else's; range may be null
struct Beyond {
    const float* range;
    float limit;

    DEVICE bool leaves(int n) const { return range && range[2 * n] + range[2 * n + 1] <= limit; }
};

// The tensors' own type, INPUT = 0: float32, 1: bfloat16, 2: float16
#if INPUT == 0
typedef float input_t;
DEVICE float widen(input_t x) { return x; }
DEVICE input_t narrow(float x) { return x; }
#elif INPUT == 1
typedef uint16 input_t;
DEVICE float widen(input_t x) { return __uint_as_float((uint32)x << 16); }
DEVICE input_t narrow(float x) { return to_bfloat(x); }
#else
typedef uint16 input_t;
DEVICE float widen(input_t x) { return from_half(x); }
DEVICE input_t narrow(float x) { return to_half(x); }
#endif

// The nearest float with ten bits behind the point; what is left over then has either sign, and no sum drifts
DEVICE float to_ten_bits(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u); }

// 1 + e^2(x + y), at most 1 + 2^cut: beyond it the fraction is 0 to the last bit, and products of some stay finite
#define CUT_BY_FOUR 30.0f
#define CUT_BY_TWO 60.0f
DEVICE float denominator(float x, float y, float cut) { return 1 + power_of_two(minimum((x + y) * TWO_LOG2_E, cut)); }

// The same to the machine, not to the compiler: what follows from it is computed where it is used, and held nowhere else
DEVICE int unknown(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

DEVICE float warp_max(float x) {
    for (int lane = 16; lane; lane /= 2) x = fmaxf(x, shuffle_xor(x, lane));
    return x;
}
DEVICE float warp_sum(float x) {
    for (int lane = 16; lane; lane /= 2) x += shuffle_xor(x, lane);
    return x;
}
// What no bound may hide: a maximum with a NaN in it is infinite
DEVICE float or_infinite(float x) { return x == x ? x : INFINITE; }

DEVICE float block_max(float x, float* scratch) {  // scratch: a float for each warp
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    block_barrier();
    for (int warp = 0; warp < blockDim.x / 32; warp++) x = fmaxf(x, scratch[warp]);
    block_barrier();
    return x;
}
DEVICE float block_sum(float x, float* scratch) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    block_barrier();
    x = 0;
    for (int warp = 0; warp < blockDim.x / 32; warp++) x += scratch[warp];
    block_barrier();
    return x;
}

// A uniform 32-bit word for each pair of a query and a key: two rounds of a multiply-and-fold hash
DEVICE uint32 mixed(uint32 a, uint32 b) {
    uint64 wide = (uint64)(a ^ 0x9e3779b9u) * 0xd2511f53ull + b;
    return (uint32)(wide >> 32) ^ (uint32)wide;
}
DEVICE uint32 drawn(uint64 seed, uint32 n, uint32 t, uint32 s) {
    uint32 row = mixed(mixed((uint32)seed, n), mixed((uint32)(seed >> 32), t));
    uint32 x = mixed(row, s);
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}

// Which pairs may meet: a band over s - t, and bytes that may be broadcast along any axis
struct Allowed {
    const unsigned char* bytes;  // null: no bytes
    int inner, stride_outer, stride_inner, stride_t, stride_s, low, high;

    DEVICE bool operator()(int n, int t, int s) const {
        if (s - t < low || s - t > high) return false;
        if (!bytes) return true;
        long long at = (long long)(n / inner) * stride_outer + (long long)(n % inner) * stride_inner;
        return bytes[at + (long long)t * stride_t + (long long)s * stride_s];
    }
};

struct Drawing {  // dropout of weights: those drawn below `threshold` are left out, the others grow
    const uint64* seed;
    uint32 threshold;
    float kept;  // 1 / (1 - share)

    DEVICE float operator()(int n, int t, int s) const {
        return !threshold ? 1.0f : drawn(*seed, n, t, s) < threshold ? 0.0f : kept;
    }
};
