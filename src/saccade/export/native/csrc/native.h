// What the parts of the native library share. See docs/decisions/0029-native.md.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum { PANEL = 64, LANES = 16, MOST_BEST = 64 };  // columns of a panel of weights; floats of a vector; candidates of a row

// A matrix [out, in] in panels of 64 outputs. float32: [panel][in][64]. int8: [panel][in / 4][64][4], each weight + 128.
struct matrix {
  long num_in, num_out, num_panels;
  const float *scale, *bias;  // of each output; scale is null where the weights are floats
  const void *weight;
};

// Rows that a matrix is multiplied with: floats, or bytes with a scale for each row.
struct rows {
  long count, stride;
  const float *x;
  const int8_t *q;
  const float *scale;
  const int32_t *sum;
};

enum mode { SET, ADD, RELU, GELU, SILU, TIMES, TANH };  // what becomes of x W + b: out = y, out += y, out = f(y), out *= y

// What is found among the logits of a row: max and sum of exp(logit - max), the best ids, and the logit of one id.
struct scan {
  uint64_t banned;  // bits of the first 64 ids
  int32_t watched, num_best;
  float max, sum, watched_logit;
  float best[MOST_BEST];
  int32_t id[MOST_BEST];
};

// Where the key and value of a head are; of bytes also their scales, two floats.
struct place {
  long key, value, scale;
};

struct kernels {
  const char *name;
  void (*quantize)(const float *x, long n, int8_t *q, float *scale, int32_t *sum);
  void (*normalize)(const float *x, long n, const float *weight, const float *bias, float epsilon, float *y);
  void (*product)(const struct rows *in, const struct matrix *w, long first, long last, enum mode mode, float *out,
                  long stride);
  // like product, without keeping the logits; scan[row * stride] is that of a row
  void (*scan)(const struct rows *in, const struct matrix *w, long first, long last, struct scan *scan, long stride);
  // the same of logits that are there already, of these columns in this order; ids are places in that order
  void (*scan_some)(const float *logits, const int32_t *columns, long count, struct scan *scan);
  // one head: sum_s softmax_s(q k_s * scale + bias_s) v_s; places in at[s], in bytes
  void (*attend)(const float *q, long width, float scale, const float *bias, long count, const char *const *at,
                 struct place place, float *score, float *out);
  void (*attend_bytes)(const float *q, long width, float scale, const float *bias, long count, const char *const *at,
                       struct place place, float *score, float *out);
  void (*keep_bytes)(const float *x, long width, char *at, float *scale);
  // a step of a recurrent cell of 1, 3 or 4 gates: h (and c) of the step before, and those after it, which may be the same
  void (*cell)(int num_gates, long width, const float *given, const float *hidden, const float *h, const float *c,
               float *h_after, float *c_after);
  // sum_s softmax_s(q k_s * scale) v_s; with `additive`, of additive tanh(q + k_s); rows are zero behind `width`
  void (*attend_source)(const float *q, long width, float scale, const float *additive, long count, const float *keys,
                        const float *values, long stride, float *score, float *out);
};

const struct kernels *kernels_plain(void), *kernels_avx2(void), *kernels_avxvnni(void), *kernels_avx512(void),
    *kernels_avx512vnni(void), *kernels_dotprod(void);

struct norm {
  const float *weight, *bias;
};

struct layer {
  struct norm own_norm, cross_norm, feed_norm;
  struct matrix own, own_out, cross_query, cross_memory, cross_out, inner, gate, outer;
};

// Of an RNN: W x + b and U h + b of a cell's gates, in the order of torch; what its attention and its output need.
struct cell {
  struct matrix input, hidden;
};

struct recurrent {
  struct cell *encoder, *decoder;  // [layer][side], [layer]
  struct matrix bridge, key, query, readout;
  const float *v;
};

// BLOCKS and CELLS read vectors of texts, and write none: the encoders of classifiers and taggers.
enum kind_of_model { TRANSFORMER, PLAIN, BAHDANAU, LUONG, LUONG_FED, BLOCKS, CELLS };
enum cell_of_model { RNN, GRU, LSTM };
enum direction { FORWARD, BACKWARD, BOTH };
enum score { NO_SCORE, DOT, SCALED_DOT, GENERAL, ADDITIVE };
enum positions { NO_POSITIONS, SINUSOIDAL, LEARNED, ROTARY, RELATIVE, SINUSOIDAL_HALVES };

struct sizes {  // as the file has them, each 8 bytes
  int64_t version, bytes, is_int8, width, num_heads, hidden, num_encoder, num_decoder, num_source, num_target, is_pre,
      activation, positions, num_positions, window, share_source, share_output, distance, kind, cell, direction, score,
      input;  // the width of the vectors that are read
  double epsilon;
  uint64_t checksum;  // of all that follows
};

struct model {
  struct sizes sizes;
  long stride, head_width;  // of a row of `width` floats; of a head
  struct matrix source, target, output;
  struct layer *encoder, *decoder;
  struct recurrent recurrent;
  struct norm encoder_norm, decoder_norm;
  const float *positions, *encoder_bias, *decoder_bias;
  const double *rates;  // of the angles of sinusoids and rotary positions
  float *table;  // sines and cosines of as many positions as were needed yet
  long num_table;
  const struct kernels *kernels;
  struct pool *pool;
  pthread_mutex_t lock;  // of the pool and its buffers: one computation at a time
  struct crew *together, *alone;  // all threads in one crew; a crew for each
  const void *mapped;
  size_t num_mapped;
};

// Threads that take part in one computation; what they share, and what each has for itself.
struct crew {
  int size;
  atomic_int arrived, phase;
  struct crew_buffers *buffers;
};

struct pool *pool_new(int size);
void pool_free(struct pool *pool);
int pool_size(const struct pool *pool);
void pool_run(struct pool *pool, void (*run)(void *with, int rank), void *with);
void crew_wait(struct crew *crew);

// The encoded source of a sentence: for each decoder layer [step][pair].
struct memory {
  long count;
  char *pairs;
};

// A row of a decoder's step: a hypothesis that reads an id. `past` points to the keys and values of the steps so far.
struct row {
  const struct memory *memory;
  const char **past;
  char *entry;  // of this step, also the last of `past`
  long step;
  int32_t id;
};

struct range {
  long first, last;
};

static inline bool is_recurrent(const struct model *model) {
  return model->sizes.kind != TRANSFORMER && model->sizes.kind != BLOCKS;
}

static inline long round_up(long n, long to) { return (n + to - 1) / to * to; }
struct range share(const struct crew *crew, int rank, long count);
// What a matrix reads: rows, or their bytes, in buffers of the thread.
struct rows prepare_rows(const struct model *model, struct crew *crew, int rank, const float *x, long count, long stride);
void multiply(const struct model *model, struct crew *crew, int rank, const struct rows *rows, const struct matrix *w,
              enum mode mode, float *out, long stride);
void embed(const struct model *model, const struct matrix *w, int32_t id, long place, float *x);

struct recurrent_buffers {
  long room;  // rows
  float *x, *joint, *even, *odd, *read, *query, *context, *given, *hidden, *state;
};

struct recurrent_buffers *recurrent_buffers(struct crew *crew);
float *scores_of(struct crew *crew, int rank);
void recurrent_reserve(const struct model *model, struct crew *crew, int rank, long rows, long steps);
void recurrent_room(const struct model *model, long *widest, long *longest);
long recurrent_entry_size(const struct model *model);
long recurrent_memory_size(const struct model *model, long count);
void recurrent_encode(const struct model *model, struct crew *crew, int rank, long count, const int32_t *const *ids,
                      struct memory *const *memories);
// Reads vectors [step][stride], and leaves those of the encoder in `out`; of cells the last states in `last`.
void recurrent_read(const struct model *model, struct crew *crew, int rank, long count, struct memory *const *memories,
                    const float *x, float *out, float *last);
void read_blocks(const struct model *model, struct crew *crew, int rank, long count, struct memory *const *memories,
                 const float *x, float *out);
void recurrent_decode(const struct model *model, struct crew *crew, int rank, long count, const struct row *rows,
                      float *out);

struct crew_buffers *buffers_new(int size);
void buffers_free(struct crew_buffers *buffers);
// In bytes: of the key and value of all heads of a layer, of those of all layers, of an encoded source.
long pair_size(const struct model *model);
long entry_size(const struct model *model);
long memory_size(const struct model *model, long count);
void encode(const struct model *model, struct crew *crew, int rank, long count, const int32_t *const *ids,
            struct memory *const *memories);
// Leaves the decoder's vectors in `out` [row][model->stride], which all threads share.
void decode(const struct model *model, struct crew *crew, int rank, long count, const struct row *rows, float *out);
// Fills scans [row] from vectors.
void scan_logits(const struct model *model, struct crew *crew, int rank, long count, const float *vectors,
                 struct scan *scans);
// Some ids of the vocabulary, with their part of the output matrix; and for each row its own among these.
struct shortlist {
  struct matrix matrix;
  float *logits;  // [row][matrix.num_panels * 64]
  const int32_t **columns;
  long *counts;
};

void scan_shortlist(const struct model *model, struct crew *crew, int rank, long count, const float *vectors,
                    const struct shortlist *shortlist, struct scan *scans);
// Copies some outputs of the output matrix into another, which has room for them.
void copy_outputs(const struct model *model, const int32_t *ids, struct matrix *into);
void write_logits(const struct model *model, struct crew *crew, int rank, long count, const float *vectors, float *out,
                  long stride);
void extend_table(struct model *model, long count);
