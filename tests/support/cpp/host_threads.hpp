// The CUDA kernels on a CPU: every thread of a block is a coroutine, run in turn until it waits at a barrier.
// Slow and exact: it finds wrong indices, missing barriers (SHUFFLED turns) and wrong arithmetic, not slow code.
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#define DEVICE inline
#define KERNEL(threads, blocks) static void
#define SHARED(name) float* name = host::shared_of(host::current / blockDim.x)

typedef uint32_t uint32;
typedef uint16_t uint16;
typedef uint64_t uint64;
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct dim3 { int x, y, z; };

namespace host {
enum State { RUNS, AT_WARP, AT_BLOCK, AT_CLUSTER, DONE };
struct Thread {
    ucontext_t context;  // begins it; later switches jump, as swapcontext asks the system for signal masks each time
    jmp_buf place;
    bool has_begun;
    std::vector<char> stack;
    State state;
    float parts[8];
    bool flag;
    int arrivals;  // at the cluster's barrier
};
inline std::vector<Thread> threads;  // of all blocks of a cluster, one behind the other
inline std::vector<std::vector<float>> shared;
inline float* shared_of(int rank) { return shared[rank].data(); }
inline jmp_buf scheduler;
inline int current;
inline bool any;
inline void wait(State state) {
    Thread& thread = threads[current];
    thread.state = state;
    if (!_setjmp(thread.place)) _longjmp(scheduler, 1);
}
inline void go_on(Thread& thread) {
    if (_setjmp(scheduler)) return;
    if (thread.has_begun) _longjmp(thread.place, 1);
    thread.has_begun = true;
    setcontext(&thread.context);
}
}  // namespace host

static dim3 threadIdx, blockIdx, blockDim, gridDim;

DEVICE void cluster_arrive() { host::threads[host::current].arrivals++; }
DEVICE void cluster_begin() { cluster_arrive(); }
DEVICE void cluster_wait() { host::wait(host::AT_CLUSTER); }
DEVICE void write_to_rank(int rank, float* to, float x) {
    host::shared_of(rank)[to - host::shared_of(host::current / blockDim.x)] = x;
}

DEVICE float __uint_as_float(uint32 x) { float y; memcpy(&y, &x, 4); return y; }
DEVICE uint32 __float_as_uint(float x) { uint32 y; memcpy(&y, &x, 4); return y; }
DEVICE float __int_as_float(int x) { return __uint_as_float((uint32)x); }
template <class T> DEVICE T min(T a, T b) { return a < b ? a : b; }
template <class T> DEVICE T max(T a, T b) { return a > b ? a : b; }
DEVICE float reciprocal(float x) { return 1.0f / x; }
DEVICE float power_of_two(float x) { return exp2f(x); }
DEVICE float minimum(float x, float y) { return x != x ? x : fminf(x, y); }
DEVICE float from_half(uint16 x) { _Float16 y; memcpy(&y, &x, 2); return (float)y; }
DEVICE uint16 to_half(float x) { _Float16 y = (_Float16)x; uint16 z; memcpy(&z, &y, 2); return z; }
DEVICE uint16 to_bfloat(float x) {
    uint32 bits = __float_as_uint(x);
    if (x != x) return 0x7fc0;
    return (uint16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
DEVICE void copy_later(float* to, const float* from) { memcpy(to, from, 16); }
DEVICE void copy_eight_later(float* to, const void* from) { memcpy(to, from, 8); }
DEVICE void copies_done() {}
DEVICE void copies_grouped() {}
template <int LEFT> DEVICE void groups_done_but() {}
DEVICE void let_next_begin() {}
DEVICE void wait_for_before() {}
DEVICE void raise(float* to, float x) { *to = fmaxf(*to, x); }
DEVICE void add_to(float* to, float x) { *to += x; }
DEVICE void block_barrier() { host::wait(host::AT_BLOCK); }
DEVICE bool block_any(bool mine) {
    host::threads[host::current].flag = mine;
    block_barrier();
    bool any = false;
    int first = host::current / blockDim.x * blockDim.x;
    for (int i = first; i < first + blockDim.x; i++) any |= host::threads[i].flag;
    block_barrier();
    return any;
}
DEVICE void warp_barrier() { host::wait(host::AT_WARP); }
DEVICE float shuffle_xor(float x, int lane) {
    int me = host::current;
    host::threads[me].parts[0] = x;
    host::wait(host::AT_WARP);
    float y = host::threads[me ^ lane].parts[0];
    host::wait(host::AT_WARP);
    return y;
}
DEVICE float cut(float x) { return __uint_as_float(__float_as_uint(x) & 0xffffe000u); }
DEVICE float toward_zero(double x) {
    float y = (float)x;
    return std::isfinite(y) && std::fabs((double)y) > std::fabs(x) ? nextafterf(y, 0.0f) : y;
}
DEVICE void multiply_add_16x8x8(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
    int me = host::current, warp = me & ~31, lane = me & 31;
    float* mine = host::threads[me].parts;
    memcpy(mine, a, 16), memcpy(mine + 4, b, 8);
    host::wait(host::AT_WARP);
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        double exact = c[i];
        for (int k = 0; k < 8; k++) {
            float left = host::threads[warp + row % 8 * 4 + k % 4].parts[row / 8 + 2 * (k / 4)];
            float right = host::threads[warp + column * 4 + k % 4].parts[4 + k / 4];
            exact += (double)cut(left) * cut(right);
        }
        c[i] = toward_zero(exact);  // tensor cores don't round
    }
    host::wait(host::AT_WARP);
}

namespace host {
typedef void (*Body)();
inline Body body;
inline void start() {
    body();
    wait(DONE);
}
template <class Call> static Call* held;
template <class Call> void call() { (*held<Call>)(); }

inline bool release() {  // those who all wait together go on; false: all are done
    int count = (int)threads.size(), done = 0, arrivals = 1 << 30;
    bool moved = false;
    for (auto& thread : threads)
        if (thread.state == DONE) done++;
        else arrivals = min(arrivals, thread.arrivals);
    if (done == count) return false;
    for (auto& thread : threads)
        if (thread.state == AT_CLUSTER && thread.arrivals <= arrivals) thread.state = RUNS, moved = true;
    for (int block = 0; block < count; block += blockDim.x) {
        bool all = true;
        for (int i = block; i < block + blockDim.x; i++) all &= threads[i].state == AT_BLOCK || threads[i].state == DONE;
        for (int i = block; all && i < block + blockDim.x; i++)
            if (threads[i].state == AT_BLOCK) threads[i].state = RUNS, moved = true;
    }
    for (int warp = 0; warp < count; warp += 32) {
        bool all = true;
        for (int i = warp; i < warp + 32; i++) all &= threads[i].state == AT_WARP || threads[i].state == DONE;
        for (int i = warp; all && i < warp + 32; i++)
            if (threads[i].state == AT_WARP) threads[i].state = RUNS, moved = true;
    }
    if (!moved) abort();  // some wait for each other for ever
    return true;
}

template <class Call> void run_cluster(Call& one, dim3 first) {
    int seed = first.x * 7 + first.y * 3 + first.z;
    held<Call> = &one, body = &call<Call>;
    int count = (int)threads.size();
    for (int i = 0; i < count; i++) {
        Thread& thread = threads[i];
        thread.state = RUNS, thread.arrivals = 0, thread.has_begun = false;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.data();
        thread.context.uc_stack.ss_size = thread.stack.size();
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, (void (*)())start, 0);
    }
    do {
        seed = seed * 1103515245 + 12345;
        int begin = (seed >> 8 & 0x7fffff) % count, step = seed & 1 << 20 ? count - 1 : 1;
        for (int turn = 0, i = begin; turn < count; turn++, i = (i + step) % count) {
            if (threads[i].state != RUNS) continue;
            current = i;
            threadIdx = {i % blockDim.x, 0, 0}, blockIdx = {first.x, first.y + i / blockDim.x, first.z};
            go_on(threads[i]);
        }
    } while (release());
}

template <class... Args, size_t... I>
void launch(
    void (*kernel)(Args...), const int* grid, int block, int cluster, int bytes, void** given, std::index_sequence<I...>
) {
    threads.resize(block * cluster), shared.resize(cluster);
    for (auto& thread : threads) thread.stack.resize(1 << 15);
    blockDim = {block, 1, 1}, gridDim = {grid[0], grid[1], grid[2]};
    auto one = [&] { kernel(*(std::decay_t<Args>*)given[I]...); };
    for (int z = 0; z < grid[2]; z++)
        for (int y = 0; y < grid[1]; y += cluster)
            for (int x = 0; x < grid[0]; x++) {
                for (auto& own : shared) own.assign(bytes / 4 + 4, NAN);  // nobody may read what nobody wrote
                run_cluster(one, {x, y, z});
            }
}
template <class... Args>
void launch(void (*kernel)(Args...), const int* grid, int block, int cluster, int bytes, void** given) {
    launch(kernel, grid, block, cluster, bytes, given, std::index_sequence_for<Args...>{});
}
}  // namespace host

#define EXPORT(name)                                                                              \
    extern "C" __attribute__((visibility("default")))                                             \
    void launch_##name(const int* grid, int block, int cluster, int bytes, void** given) {        \
        host::launch(name, grid, block, cluster, bytes, given);                                   \
    }
