// The arithmetic. This file is compiled once for each instruction set, with KERNELS as the name of its table.
//
// A result never depends on the other rows, nor on the number of threads: sums of bytes are exact, and every sum of
// floats has one order.
#include <math.h>
#include <string.h>

#include "native.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(64), aligned(4), may_alias));
typedef int8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

INLINE floats all(float x) { return x - (floats){}; }
INLINE floats load(const float *x) { return *(const floats *)x; }
INLINE void store(float *x, floats y) { *(floats *)x = y; }
INLINE floats choose(ints where, floats yes, floats no) {
  return (floats)((where & (ints)yes) | (~where & (ints)no));
}
INLINE floats magnitude(floats x) { return (floats)((ints)x & 0x7fffffff); }

// The order of a sum is the same for all instruction sets: halves are added to each other.
#if defined(__AVX512F__)
INLINE floats larger(floats x, floats y) { return (floats)_mm512_max_ps((__m512)x, (__m512)y); }
INLINE __m128 fold(floats y, bool is_sum) {
  __m512 x = (__m512)y;
  __m256 low = _mm512_castps512_ps256(x), high = _mm512_extractf32x8_ps(x, 1);
  low = is_sum ? _mm256_add_ps(low, high) : _mm256_max_ps(low, high);
  __m128 left = _mm256_castps256_ps128(low), right = _mm256_extractf128_ps(low, 1);
  return is_sum ? _mm_add_ps(left, right) : _mm_max_ps(left, right);
}
#elif defined(__AVX2__)
struct pair {
  __m256 low, high;
};
INLINE struct pair split(floats x) {
  struct pair pair;
  memcpy(&pair, &x, sizeof pair);
  return pair;
}
INLINE floats larger(floats x, floats y) {
  struct pair a = split(x), b = split(y), most = {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  floats found;
  memcpy(&found, &most, sizeof found);
  return found;
}
INLINE __m128 fold(floats x, bool is_sum) {
  struct pair pair = split(x);
  __m256 low = is_sum ? _mm256_add_ps(pair.low, pair.high) : _mm256_max_ps(pair.low, pair.high);
  __m128 left = _mm256_castps256_ps128(low), right = _mm256_extractf128_ps(low, 1);
  return is_sum ? _mm_add_ps(left, right) : _mm_max_ps(left, right);
}
#else
INLINE floats larger(floats x, floats y) { return choose(x > y, x, y); }
#endif

#if defined(__AVX2__)
INLINE float sum_of(floats x) {
  __m128 four = fold(x, true);
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
INLINE float max_of(floats x) {
  __m128 four = fold(x, false);
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
#else
INLINE float sum_of(floats x) {
  float part[LANES];
  store(part, x);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) part[i] += part[i + half];
  return part[0];
}
INLINE float max_of(floats x) {
  float part[LANES];
  store(part, x);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) part[i] = part[i] > part[i + half] ? part[i] : part[i + half];
  return part[0];
}
#endif

// e^x to 2 ulp; below -87 the smallest normal number.
INLINE floats exponential(floats x) {
  x = larger(x, all(-87.0f));
  x = -larger(-x, all(-88.0f));
  floats magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  floats n = (x * 1.44269504088896341f + magic) - magic;
  floats r = x - n * 0.693359375f - n * -2.12194440e-4f;
  floats p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return (floats)((ints)p + (__builtin_convertvector(n, ints) << 23));
}

INLINE floats silu(floats x) { return x / (1.0f + exponential(-x)); }

// x/2 (1 + erf(x/sqrt 2)); erf by Abramowitz and Stegun 7.1.26, error 1.5e-7.
INLINE floats gelu(floats x) {
  floats z = magnitude(x) * 0.70710678118654752f, t = 1.0f / (1.0f + 0.3275911f * z);
  floats p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  floats tail = p * exponential(-z * z);  // 1 - erf(z)
  return 0.5f * x * choose(x > 0.0f, 2.0f - tail, tail);
}

INLINE floats sigmoid(floats x) { return 1.0f / (1.0f + exponential(-x)); }
INLINE floats hyperbolic(floats x) { return 1.0f - 2.0f / (1.0f + exponential(2.0f * x)); }

static void quantize(const float *x, long n, int8_t *q, float *scale, int32_t *sum) {
  floats part[4] = {all(0), all(0), all(0), all(0)};  // n is a multiple of 64
  for (long i = 0; i < n; i += 4 * LANES)
    UNROLL for (int c = 0; c < 4; c++) part[c] = larger(part[c], magnitude(load(x + i + c * LANES)));
  float max = max_of(larger(larger(part[0], part[1]), larger(part[2], part[3]))), inverse = max > 0 ? 127.0f / max : 0.0f;
  ints total = {};
  for (long i = 0; i < n; i += LANES) {
    floats y = load(x + i) * inverse + 12582912.0f;  // rounds to the nearest, ties to even
    ints number = (ints)y - 0x4b400000;
    total += number;
    *(bytes *)(q + i) = __builtin_convertvector(number, bytes);
  }
  int32_t whole = 0;
  for (int i = 0; i < LANES; i++) whole += total[i];
  *scale = max / 127.0f, *sum = whole;
}

static void normalize(const float *x, long n, const float *weight, const float *bias, float epsilon, float *y) {
  long blocks = n / (4 * LANES) * 4 * LANES;
  ints lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  floats part[4] = {all(0), all(0), all(0), all(0)};
  for (long i = 0; i < blocks; i += 4 * LANES)
    UNROLL for (int c = 0; c < 4; c++) part[c] += load(x + i + c * LANES);
  for (long i = blocks; i < n; i += LANES) part[0] += choose(lane < (int32_t)(n - i), load(x + i), all(0));
  float mean = sum_of((part[0] + part[1]) + (part[2] + part[3])) / (float)n;
  UNROLL for (int c = 0; c < 4; c++) part[c] = all(0);
  for (long i = 0; i < blocks; i += 4 * LANES)
    UNROLL for (int c = 0; c < 4; c++) {
      floats d = load(x + i + c * LANES) - mean;
      part[c] += d * d;
    }
  for (long i = blocks; i < n; i += LANES) {
    floats d = choose(lane < (int32_t)(n - i), load(x + i) - mean, all(0));
    part[0] += d * d;
  }
  float square = sum_of((part[0] + part[1]) + (part[2] + part[3]));
  float inverse = 1.0f / sqrtf(square / (float)n + epsilon);
  for (long i = 0; i < n; i += LANES)  // the weights behind the last are 0
    store(y + i, (load(x + i) - mean) * inverse * load(weight + i) + load(bias + i));
}

// ---- products of bytes: [ROWS][64] sums of x (w + 128)

#if defined(__AVX512VNNI__)
enum { BYTE_ROWS = 4 };
INLINE void byte_tile(const int rows, const int8_t *x, long stride, const uint8_t *w, long groups, int32_t *out) {
  __m512i sum[BYTE_ROWS][4];
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int c = 0; c < 4; c++) sum[r][c] = _mm512_setzero_si512();
  for (long k = 0; k < groups; k++, w += 4 * PANEL) {
    __m512i part[4];
    UNROLL for (int c = 0; c < 4; c++) part[c] = _mm512_loadu_si512(w + 64 * c);
    UNROLL for (int r = 0; r < rows; r++) {
      int32_t four;
      memcpy(&four, x + r * stride + 4 * k, 4);
      __m512i y = _mm512_set1_epi32(four);
      UNROLL for (int c = 0; c < 4; c++) sum[r][c] = _mm512_dpbusd_epi32(sum[r][c], part[c], y);
    }
  }
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int c = 0; c < 4; c++) _mm512_storeu_si512(out + r * PANEL + 16 * c, sum[r][c]);
}
#elif defined(__AVX512BW__)
enum { BYTE_ROWS = 4 };
INLINE void byte_tile(const int rows, const int8_t *x, long stride, const uint8_t *w, long groups, int32_t *out) {
  for (int first = 0; first < PANEL; first += 32) {
    __m512i sum[BYTE_ROWS][4];
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < 4; c++) sum[r][c] = _mm512_setzero_si512();
    for (long k = 0; k < groups; k++) {
      __m512i part[4];
      for (int c = 0; c < 4; c++)  // 8 columns of 4 bytes
        part[c] = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)(w + k * 4 * PANEL + 4 * first + 32 * c)));
      for (int r = 0; r < rows; r++) {
        int32_t four;
        memcpy(&four, x + r * stride + 4 * k, 4);
        __m512i y = _mm512_cvtepi8_epi16(_mm256_set1_epi32(four));
        for (int c = 0; c < 4; c++) sum[r][c] = _mm512_add_epi32(sum[r][c], _mm512_madd_epi16(part[c], y));
      }
    }
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < 4; c++) {
        int32_t pair[16];
        _mm512_storeu_si512(pair, sum[r][c]);
        for (int i = 0; i < 8; i++) out[r * PANEL + first + 8 * c + i] = pair[2 * i] + pair[2 * i + 1];
      }
  }
}
#elif defined(__AVXVNNI__)
enum { BYTE_ROWS = 4 };
INLINE void byte_tile(const int rows, const int8_t *x, long stride, const uint8_t *w, long groups, int32_t *out) {
  for (int first = 0; first < PANEL; first += 16) {
    __m256i sum[BYTE_ROWS][2];
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < 2; c++) sum[r][c] = _mm256_setzero_si256();
    for (long k = 0; k < groups; k++) {
      const uint8_t *at = w + k * 4 * PANEL + 4 * first;
      __m256i part[2] = {_mm256_loadu_si256((const void *)at), _mm256_loadu_si256((const void *)(at + 32))};
      for (int r = 0; r < rows; r++) {
        int32_t four;
        memcpy(&four, x + r * stride + 4 * k, 4);
        __m256i y = _mm256_set1_epi32(four);
        for (int c = 0; c < 2; c++) sum[r][c] = _mm256_dpbusd_avx_epi32(sum[r][c], part[c], y);
      }
    }
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < 2; c++) _mm256_storeu_si256((void *)(out + r * PANEL + first + 8 * c), sum[r][c]);
  }
}
#elif defined(__AVX2__)
enum { BYTE_ROWS = 2 };
INLINE void byte_tile(const int rows, const int8_t *x, long stride, const uint8_t *w, long groups, int32_t *out) {
  for (int first = 0; first < PANEL; first += 16) {
    __m256i sum[BYTE_ROWS][4];
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < 4; c++) sum[r][c] = _mm256_setzero_si256();
    for (long k = 0; k < groups; k++) {
      __m256i part[4];
      for (int c = 0; c < 4; c++)  // 4 columns of 4 bytes
        part[c] = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(w + k * 4 * PANEL + 4 * first + 16 * c)));
      for (int r = 0; r < rows; r++) {
        int32_t four;
        memcpy(&four, x + r * stride + 4 * k, 4);
        __m256i y = _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
        for (int c = 0; c < 4; c++) sum[r][c] = _mm256_add_epi32(sum[r][c], _mm256_madd_epi16(part[c], y));
      }
    }
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < 4; c++) {
        int32_t pair[8];
        _mm256_storeu_si256((void *)pair, sum[r][c]);
        for (int i = 0; i < 4; i++) out[r * PANEL + first + 4 * c + i] = pair[2 * i] + pair[2 * i + 1];
      }
  }
}
#elif defined(__ARM_FEATURE_DOTPROD)
enum { BYTE_ROWS = 4 };
INLINE void byte_tile(const int rows, const int8_t *x, long stride, const uint8_t *w, long groups, int32_t *out) {
  for (int first = 0; first < PANEL; first += 16) {
    int32x4_t sum[BYTE_ROWS][4];
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < 4; c++) sum[r][c] = vdupq_n_s32(0);
    for (long k = 0; k < groups; k++) {
      int8x16_t part[4];
      for (int c = 0; c < 4; c++)  // the instruction has signed bytes: w
        part[c] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(w + k * 4 * PANEL + 4 * first + 16 * c), vdupq_n_u8(128)));
      for (int r = 0; r < rows; r++) {
        int32_t four;
        memcpy(&four, x + r * stride + 4 * k, 4);
        int8x16_t y = vreinterpretq_s8_s32(vdupq_n_s32(four));
        for (int c = 0; c < 4; c++) sum[r][c] = vdotq_s32(sum[r][c], part[c], y);
      }
    }
    for (int r = 0; r < rows; r++) {
      int32_t total = 0;
      for (long k = 0; k < 4 * groups; k++) total += x[r * stride + k];
      for (int c = 0; c < 4; c++)  // the caller expects w + 128
        vst1q_s32(out + r * PANEL + first + 4 * c, vaddq_s32(sum[r][c], vdupq_n_s32(128 * total)));
    }
  }
}
#else
enum { BYTE_ROWS = 1 };
INLINE void byte_tile(const int rows, const int8_t *x, long stride, const uint8_t *w, long groups, int32_t *out) {
  (void)stride;
  memset(out, 0, sizeof(int32_t) * PANEL * (size_t)rows);
  for (long k = 0; k < groups; k++, w += 4 * PANEL)
    for (int c = 0; c < PANEL; c++)
      for (int i = 0; i < 4; i++) out[c] += w[4 * c + i] * x[4 * k + i];
}
#endif

// ---- products of floats: [ROWS][64]

#if defined(__AVX512F__)
enum { WIDE = 16, ACROSS = 4, FLOAT_ROWS = 6 };
#elif defined(__AVX2__)
enum { WIDE = 8, ACROSS = 2, FLOAT_ROWS = 6 };
#else
enum { WIDE = 4, ACROSS = 2, FLOAT_ROWS = 4 };
#endif
typedef float wide __attribute__((vector_size(WIDE * 4), aligned(4), may_alias));

INLINE void float_tile(const int rows, const float *x, long stride, const float *w, long count, float *out) {
  for (int first = 0; first < PANEL; first += WIDE * ACROSS) {
    wide sum[FLOAT_ROWS][ACROSS];
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < ACROSS; c++) sum[r][c] = (wide){};
    for (long k = 0; k < count; k++) {
      wide part[ACROSS];
      for (int c = 0; c < ACROSS; c++) part[c] = *(const wide *)(w + k * PANEL + first + WIDE * c);
      for (int r = 0; r < rows; r++)
        for (int c = 0; c < ACROSS; c++) sum[r][c] += part[c] * x[r * stride + k];
    }
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < ACROSS; c++) *(wide *)(out + r * PANEL + first + WIDE * c) = sum[r][c];
  }
}

enum { MOST_ROWS = (int)BYTE_ROWS > (int)FLOAT_ROWS ? (int)BYTE_ROWS : (int)FLOAT_ROWS };

// The outputs of one panel for some rows, x W + b: [ROWS][64].
INLINE void tile(const int rows, const struct rows *in, long row, const struct matrix *w, long panel, float *y) {
  const float *bias = w->bias + panel * PANEL;
  const int byte_rows = rows < BYTE_ROWS ? rows : BYTE_ROWS, float_rows = rows < FLOAT_ROWS ? rows : FLOAT_ROWS;
  if (!w->scale) {
    const float *weight = (const float *)w->weight + panel * PANEL * w->num_in;
    float_tile(float_rows, in->x + row * in->stride, in->stride, weight, w->num_in, y);
    for (int r = 0; r < float_rows; r++)
      for (int c = 0; c < PANEL; c += LANES) store(y + r * PANEL + c, load(y + r * PANEL + c) + load(bias + c));
    return;
  }
  long groups = (w->num_in + 3) / 4;
  int32_t sum[MOST_ROWS * PANEL];
  const uint8_t *weight = (const uint8_t *)w->weight + panel * groups * 4 * PANEL;
  byte_tile(byte_rows, in->q + row * in->stride, in->stride, weight, groups, sum);
  for (int r = 0; r < byte_rows; r++) {
    int32_t offset = 128 * in->sum[row + r];
    for (int c = 0; c < PANEL; c += LANES) {
      floats value = __builtin_convertvector(*(const ints *)(sum + r * PANEL + c) - offset, floats);
      floats scale = in->scale[row + r] * load(w->scale + panel * PANEL + c);
      store(y + r * PANEL + c, value * scale + load(bias + c));
    }
  }
}

static void tile_1(const struct rows *in, long row, const struct matrix *w, long panel, float *y) {
  tile(1, in, row, w, panel, y);
}
#define TILE(N)                                                                                          \
  static void tile_##N(const struct rows *in, long row, const struct matrix *w, long panel, float *y) {  \
    tile(N, in, row, w, panel, y);                                                                       \
  }
TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
typedef void (*Tile)(const struct rows *, long, const struct matrix *, long, float *);
static const Tile TILES[] = {0, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6};

INLINE long rows_at_once(const struct matrix *w, long left) {
  long most = w->scale ? BYTE_ROWS : FLOAT_ROWS;
  return left < most ? left : most;
}

// Asks for a part of the next panel, while this one is multiplied with some rows.
INLINE void fetch_next(const struct rows *in, long row, long count, const struct matrix *w, long panel, long last) {
  if (panel + 1 == last || in->count < 2 * count) return;
  long size = PANEL * (w->scale ? (w->num_in + 3) / 4 * 4 : 4 * w->num_in);
  const char *next = (const char *)w->weight + (panel + 1) * size;
  for (long i = size * row / in->count & -64L; i < size * (row + count) / in->count; i += 64)
    __builtin_prefetch(next + i, 0, 2);
}

INLINE void finish(enum mode mode, const float *y, float *out) {
  for (int c = 0; c < PANEL; c += LANES) {
    floats x = load(y + c);
    switch (mode) {
      case SET: break;
      case ADD: x += load(out + c); break;
      case RELU: x = larger(x, all(0)); break;
      case GELU: x = gelu(x); break;
      case SILU: x = silu(x); break;
      case TIMES: x *= load(out + c); break;
      case TANH: x = hyperbolic(x); break;
    }
    store(out + c, x);
  }
}

static void product(const struct rows *in, const struct matrix *w, long first, long last, enum mode mode, float *out,
                    long stride) {
  float y[MOST_ROWS * PANEL];
  for (long panel = first; panel < last; panel++)
    for (long row = 0; row < in->count;) {
      long count = rows_at_once(w, in->count - row);
      fetch_next(in, row, count, w, panel, last);
      TILES[count](in, row, w, panel, y);
      for (long r = 0; r < count; r++) finish(mode, y + r * PANEL, out + (row + r) * stride + panel * PANEL);
      row += count;
    }
}

// Add the logits of a panel to what was found; those that are banned count, but are not chosen.
INLINE void scan_panel(float *y, long panel, struct scan *found) {
  floats most = larger(larger(load(y), load(y + 16)), larger(load(y + 32), load(y + 48)));
  float max = max_of(most);
  if (max > found->max) {
    found->sum *= expf(found->max - max);
    found->max = max;
  }
  floats sum = all(0);
  for (int c = 0; c < PANEL; c += LANES) sum += exponential(load(y + c) - found->max);
  found->sum += sum_of(sum);
  long first = panel * PANEL;
  if (found->watched >= first && found->watched < first + PANEL) found->watched_logit = y[found->watched - first];
  if (panel == 0 && found->banned) {
    for (int c = 0; c < PANEL; c++)
      if (found->banned >> c & 1) y[c] = -INFINITY;
    max = -INFINITY;
    for (int c = 0; c < PANEL; c++) max = y[c] > max ? y[c] : max;
  }
  int count = found->num_best;
  if (!(max > found->best[count - 1])) return;
  for (int c = 0; c < PANEL; c++) {
    if (!(y[c] > found->best[count - 1])) continue;
    int at = count - 1;
    for (; at && y[c] > found->best[at - 1]; at--)
      found->best[at] = found->best[at - 1], found->id[at] = found->id[at - 1];
    found->best[at] = y[c], found->id[at] = (int32_t)(first + c);
  }
}

INLINE void begin(struct scan *found) {
  found->max = found->watched_logit = -INFINITY, found->sum = 0;
  for (int i = 0; i < found->num_best; i++) found->best[i] = -INFINITY, found->id[i] = -1;
}

static void scan_some(const float *logits, const int32_t *columns, long count, struct scan *found) {
  begin(found);
  for (long first = 0; first < count; first += PANEL) {
    float y[PANEL];
    for (long c = 0; c < PANEL; c++) y[c] = first + c < count ? logits[columns[first + c]] : -INFINITY;
    scan_panel(y, first / PANEL, found);
  }
}

static void scan(const struct rows *in, const struct matrix *w, long first, long last, struct scan *found, long stride) {
  float y[MOST_ROWS * PANEL];
  for (long row = 0; row < in->count; row++) begin(found + row * stride);
  for (long panel = first; panel < last; panel++)
    for (long row = 0; row < in->count;) {
      long count = rows_at_once(w, in->count - row);
      fetch_next(in, row, count, w, panel, last);
      TILES[count](in, row, w, panel, y);
      for (long r = 0; r < count; r++) scan_panel(y + r * PANEL, panel, found + (row + r) * stride);
      row += count;
    }
}

// Scores become the weights, but for a common factor that is returned.
INLINE float exponentiate(float *score, long count, float most) {
  for (long s = count; s < (count + LANES - 1) / LANES * LANES; s++) score[s] = -INFINITY;
  floats total = all(0);
  for (long s = 0; s < count; s += LANES) {
    floats x = exponential(load(score + s) - most);
    store(score + s, x);
    if (s + LANES <= count) total += x;
  }
  float sum = sum_of(total);
  for (long s = count / LANES * LANES; s < count; s++) sum += score[s];
  return 1.0f / sum;
}

INLINE floats widen(const int8_t *q) {  // what gcc 12 makes of __builtin_convertvector goes byte by byte
#if defined(__AVX512F__)
  return (floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)q)));
#elif defined(__AVX2__)
  struct pair pair = {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)q))),
                      _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(q + 8))))};
  floats found;
  memcpy(&found, &pair, sizeof found);
  return found;
#else
  return __builtin_convertvector(__builtin_convertvector(*(const bytes *)q, ints), floats);
#endif
}

INLINE floats read_part(const char *at, long i, bool is_bytes) {
  return is_bytes ? widen((const int8_t *)at + i) : load((const float *)(const void *)at + i);
}

INLINE float read_one(const char *at, long i, bool is_bytes) {
  return is_bytes ? (float)((const int8_t *)at)[i] : ((const float *)(const void *)at)[i];
}

INLINE float scale_of(const char *at, long scale, int which, bool is_bytes) {
  float found = 1.0f;
  if (is_bytes) memcpy(&found, at + scale + which * (long)sizeof found, sizeof found);
  return found;
}

INLINE void attend_to(const float *q, long width, float scale, const float *bias, long count, const char *const *at,
                      struct place place, float *score, float *out, bool is_bytes) {
  float most = -INFINITY;
  for (long s = 0; s < count; s++) {
    const char *k = at[s] + place.key;
    float dot = 0;
    if (width % LANES == 0) {
      floats sum = all(0);
      for (long i = 0; i < width; i += LANES) sum += load(q + i) * read_part(k, i, is_bytes);
      dot = sum_of(sum);
    } else {
      for (long i = 0; i < width; i++) dot += q[i] * read_one(k, i, is_bytes);
    }
    score[s] = dot * (scale * scale_of(at[s], place.scale, 0, is_bytes)) + (bias ? bias[s] : 0.0f);
    most = score[s] > most ? score[s] : most;
  }
  float inverse = exponentiate(score, count, most);
  for (long s = 0; is_bytes && s < count; s++) score[s] *= scale_of(at[s], place.scale, 1, is_bytes);
  if (width % LANES == 0) {
    for (long i = 0; i < width; i += 4 * LANES) {
      floats x[4] = {all(0), all(0), all(0), all(0)};
      long parts = (width - i) / LANES < 4 ? (width - i) / LANES : 4;
      if (parts == 4)
        for (long s = 0; s < count; s++)
          UNROLL for (long c = 0; c < 4; c++)
            x[c] += read_part(at[s] + place.value, i + c * LANES, is_bytes) * score[s];
      else
        for (long s = 0; s < count; s++)
          for (long c = 0; c < parts; c++) x[c] += read_part(at[s] + place.value, i + c * LANES, is_bytes) * score[s];
      for (long c = 0; c < parts; c++) store(out + i + c * LANES, x[c] * inverse);
    }
    return;
  }
  for (long i = 0; i < width; i++) {
    float x = 0;
    for (long s = 0; s < count; s++) x += read_one(at[s] + place.value, i, is_bytes) * score[s];
    out[i] = x * inverse;
  }
}

static void attend(const float *q, long width, float scale, const float *bias, long count, const char *const *at,
                   struct place place, float *score, float *out) {
  if (width == 64) attend_to(q, 64, scale, bias, count, at, place, score, out, false);
  else attend_to(q, width, scale, bias, count, at, place, score, out, false);
}

static void attend_bytes(const float *q, long width, float scale, const float *bias, long count, const char *const *at,
                         struct place place, float *score, float *out) {
  if (width == 64) attend_to(q, 64, scale, bias, count, at, place, score, out, true);
  else attend_to(q, width, scale, bias, count, at, place, score, out, true);
}

static void keep_bytes(const float *x, long width, char *at, float *scale) {
  int8_t *q = (int8_t *)at;
  long whole = width / LANES * LANES;
  floats most = all(0);
  for (long i = 0; i < whole; i += LANES) most = larger(most, magnitude(load(x + i)));
  float max = max_of(most);
  for (long i = whole; i < width; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
  float inverse = max > 0 ? 127.0f / max : 0.0f;
  for (long i = 0; i < whole; i += LANES)
    *(bytes *)(q + i) = __builtin_convertvector((ints)(load(x + i) * inverse + 12582912.0f) - 0x4b400000, bytes);
  for (long i = whole; i < width; i++) q[i] = (int8_t)lrintf(x[i] * inverse);
  *scale = max / 127.0f;
}

static void cell(int num_gates, long width, const float *given, const float *hidden, const float *h, const float *c,
                 float *h_after, float *c_after) {
  ints lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (long i = 0; i < width; i += LANES) {
    ints is_real = lane < (int32_t)(width - i);  // what is behind the last stays 0
    floats first = load(given + i) + load(hidden + i), state;
    if (num_gates == 1) {
      state = hyperbolic(first);
    } else if (num_gates == 3) {  // r, z, n
      floats z = sigmoid(load(given + width + i) + load(hidden + width + i));
      floats n = hyperbolic(load(given + 2 * width + i) + sigmoid(first) * load(hidden + 2 * width + i));
      state = n + z * (load(h + i) - n);
    } else {  // i, f, g, o
      floats f = sigmoid(load(given + width + i) + load(hidden + width + i));
      floats g = hyperbolic(load(given + 2 * width + i) + load(hidden + 2 * width + i));
      floats o = sigmoid(load(given + 3 * width + i) + load(hidden + 3 * width + i));
      floats kept = f * load(c + i) + sigmoid(first) * g;
      store(c_after + i, choose(is_real, kept, all(0)));
      state = o * hyperbolic(kept);
    }
    store(h_after + i, choose(is_real, state, all(0)));
  }
}

static void attend_source(const float *q, long width, float scale, const float *additive, long count, const float *keys,
                          const float *values, long stride, float *score, float *out) {
  float most = -INFINITY;
  for (long s = 0; s < count; s++) {
    floats sum = all(0);
    const float *k = keys + s * stride;
    if (additive)
      for (long i = 0; i < width; i += LANES) sum += load(additive + i) * hyperbolic(load(q + i) + load(k + i));
    else
      for (long i = 0; i < width; i += LANES) sum += load(q + i) * load(k + i);
    score[s] = sum_of(sum) * scale;
    most = score[s] > most ? score[s] : most;
  }
  float inverse = exponentiate(score, count, most);
  for (long i = 0; i < stride; i += LANES) {
    floats x = all(0);
    for (long s = 0; s < count; s++) x += load(values + s * stride + i) * score[s];
    store(out + i, x * inverse);
  }
}

#define TEXT(x) TEXT_OF(x)
#define TEXT_OF(x) #x
#define JOIN(x, y) JOIN_OF(x, y)
#define JOIN_OF(x, y) x##y
static const struct kernels TABLE = {TEXT(KERNELS), quantize, normalize, product, scan, scan_some, attend, attend_bytes, keep_bytes, cell, attend_source};
const struct kernels *JOIN(kernels_, KERNELS)(void) { return &TABLE; }
