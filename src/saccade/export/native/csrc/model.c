// Opens a packed model: the file is mapped, and everything in it is checked before anything is read.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native.h"

enum { VERSION = 4, HEADER = 256, ALIGNMENT = 64 };
static const char MAGIC[8] = "saccade";

EXPORT uint64_t saccade_checksum(const void *data, long count) {  // of a multiple of 32 bytes
  const uint64_t *word = data;
  uint64_t sum[4] = {1, 2, 3, 4};
  for (long i = 0; i + 4 <= count / 8; i += 4)
    for (int lane = 0; lane < 4; lane++) {
      sum[lane] = (sum[lane] ^ word[i + lane]) * 0x9e3779b97f4a7c15u;
      sum[lane] ^= sum[lane] >> 29;
    }
  uint64_t total = (uint64_t)count;
  for (int lane = 0; lane < 4; lane++) total = (total ^ sum[lane]) * 0xd6e8feb86659fd93u, total ^= total >> 32;
  return total;
}

struct cursor {
  const char *base;
  int64_t at, bytes;
};

static const void *take(struct cursor *cursor, int64_t count) {
  int64_t at = cursor->at;
  cursor->at = count < 0 || count > cursor->bytes - at ? cursor->bytes + 1 : round_up(at + count, ALIGNMENT);
  return cursor->at > cursor->bytes ? cursor->base : cursor->base + at;
}

static struct matrix take_matrix(struct cursor *cursor, const struct sizes *sizes, long num_in, long num_out) {
  struct matrix w = {num_in, num_out, (num_out + PANEL - 1) / PANEL, 0, 0, 0};
  w.bias = take(cursor, w.num_panels * PANEL * 4);
  if (sizes->is_int8) w.scale = take(cursor, w.num_panels * PANEL * 4);
  w.weight = take(cursor, w.num_panels * PANEL * (sizes->is_int8 ? round_up(num_in, 4) : num_in * 4));
  return w;
}

static struct norm take_norm(struct cursor *cursor, long stride) {
  struct norm norm = {take(cursor, stride * 4), 0};
  norm.bias = take(cursor, stride * 4);
  return norm;
}

static void take_feed_forward(struct cursor *cursor, const struct sizes *sizes, long stride, struct layer *layer) {
  layer->feed_norm = take_norm(cursor, stride);
  layer->inner = take_matrix(cursor, sizes, sizes->width, sizes->hidden);
  if (sizes->activation == 3) layer->gate = take_matrix(cursor, sizes, sizes->width, sizes->hidden);
  layer->outer = take_matrix(cursor, sizes, sizes->hidden, sizes->width);
}

static void take_recurrent(struct model *model, struct cursor *cursor) {
  const struct sizes *sizes = &model->sizes;
  struct recurrent *network = &model->recurrent;
  long gates = sizes->cell == RNN ? 1 : sizes->cell == GRU ? 3 : 4, sides = sizes->direction == BOTH ? 2 : 1;
  long width = sizes->width, hidden = sizes->hidden, side = hidden / sides;
  for (long l = 0; l < sizes->num_encoder; l++)
    for (long i = 0; i < sides; i++) {
      network->encoder[l * sides + i].input = take_matrix(cursor, sizes, l ? hidden : width, gates * side);
      network->encoder[l * sides + i].hidden = take_matrix(cursor, sizes, side, gates * side);
    }
  if (sizes->kind == CELLS) return;
  if (sizes->kind == BAHDANAU) network->bridge = take_matrix(cursor, sizes, hidden, hidden);
  if (sizes->score == GENERAL || sizes->score == ADDITIVE) network->key = take_matrix(cursor, sizes, hidden, hidden);
  if (sizes->score == ADDITIVE) {
    network->query = take_matrix(cursor, sizes, hidden, hidden);
    network->v = take(cursor, round_up(hidden, PANEL) * 4);
  }
  long fed = sizes->kind == BAHDANAU ? hidden : sizes->kind == LUONG_FED ? width : 0;
  for (long l = 0; l < sizes->num_decoder; l++) {
    network->decoder[l].input = take_matrix(cursor, sizes, l ? hidden : width + fed, gates * hidden);
    network->decoder[l].hidden = take_matrix(cursor, sizes, hidden, gates * hidden);
  }
  if (sizes->kind == BAHDANAU) network->readout = take_matrix(cursor, sizes, 2 * hidden + width, 2 * width);
  else network->readout = take_matrix(cursor, sizes, sizes->kind == PLAIN ? hidden : 2 * hidden, width);
}

static void take_encoder(struct model *model, struct cursor *cursor) {
  const struct sizes *sizes = &model->sizes;
  for (long l = 0; l < sizes->num_encoder; l++) {
    struct layer *layer = &model->encoder[l];
    layer->own_norm = take_norm(cursor, model->stride);
    layer->own = take_matrix(cursor, sizes, sizes->width, 3 * sizes->width);
    layer->own_out = take_matrix(cursor, sizes, sizes->width, sizes->width);
    take_feed_forward(cursor, sizes, model->stride, layer);
  }
}

// The encoder of a classifier or a tagger: the matrix from what it reads to its width comes first, unless they are equal.
static void take_blocks(struct model *model, struct cursor *cursor) {
  const struct sizes *sizes = &model->sizes;
  if (sizes->input != sizes->width) model->source = take_matrix(cursor, sizes, sizes->input, sizes->width);
  take_encoder(model, cursor);
  if (sizes->is_pre) model->encoder_norm = take_norm(cursor, model->stride);
}

static void take_all(struct model *model, struct cursor *cursor) {
  const struct sizes *sizes = &model->sizes;
  long width = sizes->width, stride = model->stride;
  if (sizes->positions == SINUSOIDAL || sizes->positions == SINUSOIDAL_HALVES || sizes->positions == ROTARY)
    model->rates = take(cursor, (sizes->positions == ROTARY ? model->head_width : width) / 2 * 8);
  if (sizes->positions == LEARNED) model->positions = take(cursor, sizes->num_positions * stride * 4);
  if (sizes->positions == RELATIVE) {
    model->encoder_bias = take(cursor, sizes->num_heads * (2 * sizes->distance + 1) * 4);
    if (sizes->kind == TRANSFORMER) model->decoder_bias = take(cursor, sizes->num_heads * (sizes->distance + 1) * 4);
  }
  if (sizes->kind == BLOCKS || sizes->kind == CELLS) {
    if (sizes->kind == CELLS) take_recurrent(model, cursor);
    else take_blocks(model, cursor);
    return;
  }
  model->target = take_matrix(cursor, sizes, width, sizes->num_target);
  model->source = sizes->share_source ? model->target : take_matrix(cursor, sizes, width, sizes->num_source);
  model->output = sizes->share_output ? model->target : take_matrix(cursor, sizes, width, sizes->num_target);
  if (sizes->kind != TRANSFORMER) {
    take_recurrent(model, cursor);
    return;
  }
  take_encoder(model, cursor);
  for (long l = 0; l < sizes->num_decoder; l++) {
    struct layer *layer = &model->decoder[l];
    layer->own_norm = take_norm(cursor, stride);
    layer->own = take_matrix(cursor, sizes, width, 3 * width);
    layer->own_out = take_matrix(cursor, sizes, width, width);
    layer->cross_norm = take_norm(cursor, stride);
    layer->cross_query = take_matrix(cursor, sizes, width, width);
    layer->cross_memory = take_matrix(cursor, sizes, width, 2 * width);
    layer->cross_out = take_matrix(cursor, sizes, width, width);
    take_feed_forward(cursor, sizes, stride, layer);
  }
  if (sizes->is_pre) {
    model->encoder_norm = take_norm(cursor, stride);
    model->decoder_norm = take_norm(cursor, stride);
  }
}

static bool is_within(int64_t x, int64_t least, int64_t most) { return least <= x && x <= most; }

static const char *check_sizes(const struct sizes *sizes, int64_t bytes) {
  int64_t most = 1 << 24, least = sizes->kind == BLOCKS || sizes->kind == CELLS ? 0 : 1;  // 0: nothing is written
  if (sizes->version != VERSION) return "it was packed by another version";
  if (sizes->bytes != bytes) return "it was cut short, or something was added";
  bool fine = is_within(sizes->is_int8, 0, 1) && is_within(sizes->width, 1, 1 << 16) &&
              is_within(sizes->num_heads, 1, sizes->width) && sizes->width % sizes->num_heads == 0 &&
              is_within(sizes->hidden, 1, 1 << 18) && is_within(sizes->num_encoder, 0, 1 << 10) &&
              is_within(sizes->num_decoder, least, 1 << 10) && is_within(sizes->num_source, 4 * least, most) &&
              is_within(sizes->num_target, 4 * least, most) && is_within(sizes->is_pre, 0, 1) &&
              is_within(sizes->activation, 0, 3) && is_within(sizes->positions, NO_POSITIONS, SINUSOIDAL_HALVES) &&
              is_within(sizes->num_positions, 0, most) && is_within(sizes->window, -1, most) &&
              is_within(sizes->share_source, 0, 1) && is_within(sizes->share_output, 0, 1) &&
              is_within(sizes->distance, 0, most) && sizes->epsilon > 0 && is_within(sizes->kind, TRANSFORMER, CELLS) &&
              is_within(sizes->input, 1 - least, 1 << 18);
  if (fine && sizes->kind == CELLS)
    fine = is_within(sizes->cell, RNN, LSTM) && is_within(sizes->direction, FORWARD, BOTH) && sizes->num_encoder > 0 &&
           (sizes->direction != BOTH || sizes->hidden % 2 == 0) && sizes->input == sizes->width &&
           sizes->num_heads == 1 && sizes->positions == NO_POSITIONS;
  else if (fine && sizes->kind != TRANSFORMER && sizes->kind != BLOCKS)
    fine = is_within(sizes->cell, RNN, LSTM) && is_within(sizes->direction, FORWARD, BOTH) &&
           (sizes->direction != BOTH || sizes->hidden % 2 == 0) && sizes->num_encoder == sizes->num_decoder &&
           is_within(sizes->score, NO_SCORE, ADDITIVE) && (sizes->kind == PLAIN) == (sizes->score == NO_SCORE) &&
           sizes->num_heads == 1 && sizes->positions == NO_POSITIONS;
  return fine ? 0 : "its sizes make no sense";
}

EXPORT void saccade_close(struct model *model) {
  if (model->pool) {
    for (int rank = 0; rank < pool_size(model->pool); rank++) buffers_free(model->alone[rank].buffers);
    buffers_free(model->together->buffers);
    pool_free(model->pool);
    pthread_mutex_destroy(&model->lock);
  }
  free(model->together);
  free(model->alone);
  if (model->mapped) munmap((void *)model->mapped, model->num_mapped);
  free(model->encoder);
  free(model->decoder);
  free(model->recurrent.encoder);
  free(model->recurrent.decoder);
  free(model->table);
  free(model);
}

static const char *map(struct model *model, const char *path) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat stat;
  if (file < 0 || fstat(file, &stat)) {
    if (file >= 0) close(file);
    return strerror(errno);
  }
  if (stat.st_size < HEADER) {
    close(file);
    return "it is too short";
  }
  void *mapped = mmap(0, (size_t)stat.st_size, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return strerror(errno);
  model->mapped = mapped, model->num_mapped = (size_t)stat.st_size;
  return 0;
}

static const char *fill(struct model *model) {
  const char *base = model->mapped;
  if (memcmp(base, MAGIC, sizeof MAGIC)) return "it is no packed model";
  memcpy(&model->sizes, base + sizeof MAGIC, sizeof model->sizes);
  const char *wrong = check_sizes(&model->sizes, (int64_t)model->num_mapped);
  if (wrong) return wrong;
  if (saccade_checksum(base + HEADER, (long)model->num_mapped - HEADER) != model->sizes.checksum)
    return "its bytes are not those that were written";
  model->stride = round_up(model->sizes.width, PANEL), model->head_width = model->sizes.width / model->sizes.num_heads;
  model->encoder = calloc((size_t)model->sizes.num_encoder + 1, sizeof *model->encoder);
  model->decoder = calloc((size_t)model->sizes.num_decoder + 1, sizeof *model->decoder);
  model->recurrent.encoder = calloc((size_t)model->sizes.num_encoder * 2 + 1, sizeof *model->recurrent.encoder);
  model->recurrent.decoder = calloc((size_t)model->sizes.num_decoder + 1, sizeof *model->recurrent.decoder);
  struct cursor cursor = {base, HEADER, model->sizes.bytes};
  take_all(model, &cursor);
  return cursor.at == model->sizes.bytes ? 0 : "its sizes don't fit its length";
}

static const struct kernels *find_kernels(const char *name) {
  const struct kernels *(*tables[])(void) = {
#if defined(HAVE_avx2)
      kernels_avx2,
#endif
#if defined(HAVE_avxvnni)
      kernels_avxvnni,
#endif
#if defined(HAVE_avx512)
      kernels_avx512,
#endif
#if defined(HAVE_avx512vnni)
      kernels_avx512vnni,
#endif
#if defined(HAVE_dotprod)
      kernels_dotprod,
#endif
      kernels_plain};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    if (!strcmp(tables[i]()->name, name)) return tables[i]();
  return 0;
}

// Opens a packed model; null, with the reason, if it can't be used.
EXPORT struct model *saccade_open(const char *path, const char *kernels, int num_threads, char *reason, long room) {
  struct model *model = calloc(1, sizeof *model);
  const char *wrong = map(model, path);
  if (!wrong) wrong = fill(model);
  model->kernels = find_kernels(kernels);
  if (!wrong && !model->kernels) wrong = "there are no such kernels";
  if (wrong) {
    snprintf(reason, (size_t)room, "%s", wrong);
    saccade_close(model);
    return 0;
  }
  model->pool = pool_new(num_threads);
  pthread_mutex_init(&model->lock, 0);
  int size = pool_size(model->pool);
  model->together = calloc(1, sizeof *model->together);
  model->together->size = size, model->together->buffers = buffers_new(size);
  model->alone = calloc((size_t)size, sizeof *model->alone);
  for (int rank = 0; rank < size; rank++) model->alone[rank].size = 1, model->alone[rank].buffers = buffers_new(1);
  return model;
}

// Makes room for sines and cosines of so many positions; nothing may be computed meanwhile. Angles are as exact as
// torch's path has them: of sinusoids in float64, of rotary positions in float32.
void extend_table(struct model *model, long count) {
  bool is_rotary = model->sizes.positions == ROTARY, halves = model->sizes.positions == SINUSOIDAL_HALVES;
  if ((!is_rotary && !halves && model->sizes.positions != SINUSOIDAL) || count <= model->num_table) return;
  count = round_up(count, 256);
  long width = is_rotary ? model->head_width : model->sizes.width, stride = is_rotary ? width : model->stride;
  model->table = realloc(model->table, (size_t)(count * stride) * sizeof(float));
  for (long t = model->num_table; t < count; t++) {
    float *at = model->table + t * stride;
    memset(at, 0, (size_t)stride * sizeof(float));
    for (long i = 0; i < width / 2; i++) {
      double angle = (double)t * model->rates[i];
      if (is_rotary) angle = (float)angle;
      at[halves ? i : 2 * i] = (float)sin(angle), at[halves ? width / 2 + i : 2 * i + 1] = (float)cos(angle);
    }
  }
  model->num_table = count;
}

static int try_kernels(const struct kernels *k) {
  enum { N = 128, ROWS = 7 };
  static float x[ROWS * N], y[ROWS * 2 * PANEL], ones[2 * PANEL], zeros[2 * PANEL], score[N];
  static int8_t q[ROWS * N];
  static uint8_t w[2 * PANEL * N];
  float scale[ROWS];
  int32_t sum[ROWS];
  for (int i = 0; i < ROWS * N; i++) x[i] = (float)(i % 251) - 125;
  for (int i = 0; i < 2 * PANEL * N; i++) w[i] = (uint8_t)(i * 7);
  for (int i = 0; i < 2 * PANEL; i++) ones[i] = 1;
  for (int r = 0; r < ROWS; r++) k->quantize(x + r * N, N, q + r * N, scale + r, sum + r);
  struct rows bytes = {ROWS, N, 0, q, scale, sum}, floats = {ROWS, N, x, 0, 0, 0};
  struct matrix small = {N, 2 * PANEL, 2, ones, zeros, w}, large = {N, PANEL, 1, 0, zeros, x};
  k->product(&bytes, &small, 0, 2, GELU, y, 2 * PANEL);
  for (int r = 0; r < ROWS; r++) {
    k->product(&bytes, &small, 0, 2, SET, y, 2 * PANEL);
    long exact = 0;
    for (int i = 0; i < N; i++) exact += (long)q[r * N + i] * ((int)w[(i / 4) * 4 * PANEL + 5 * 4 + i % 4] - 128);
    if (fabsf(y[r * 2 * PANEL + 5] - (float)exact * scale[r]) > 1e-3f * (1 + fabsf((float)exact * scale[r]))) return 1;
  }
  (void)large, (void)floats;
  k->normalize(x, N, x, x, 1e-5f, y);
  k->cell(4, PANEL / 4, x, x, x, x, y, y + PANEL);
  k->attend_source(x, PANEL, 1, x, 1, x, x + N, PANEL, score, y);
  char kept[256];
  const char *at[2] = {(const char *)x, kept};
  k->attend(x, 64, 1, 0, 1, at, (struct place){0, 256, 0}, score, y);
  if (y[3] != x[67]) return 1;
  k->keep_bytes(x, 64, kept, (float *)(void *)(kept + 128));
  k->keep_bytes(x + 64, 64, kept + 64, (float *)(void *)(kept + 132));
  k->attend_bytes(x, 64, 1, 0, 1, at + 1, (struct place){0, 64, 128}, score, y);
  return fabsf(y[3] - x[67]) > 0.5f;
}

// Tries kernels in a child process, which may die of an instruction that the system does not let run: 1 if they work.
EXPORT int saccade_probe(const char *name) {
  const struct kernels *kernels = find_kernels(name);
  if (!kernels) return 0;
  pid_t child = fork();
  if (child == 0) _exit(try_kernels(kernels));
  int status = 1;
  if (child < 0) return 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 0;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
