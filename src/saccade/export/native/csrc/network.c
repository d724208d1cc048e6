// The Transformer: reads sources, and takes a step of the decoder. All threads of a crew call a function together.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

struct crew_buffers {
  struct recurrent_buffers recurrent;
  long room;  // rows
  float *x, *qkv, *read, *hidden, *gate;
  struct own {  // of a thread
    int8_t *q;
    float *scale, *normal, *score, *bias;
    int32_t *sum;
    const char **at;
    long room, steps;
  } *own;
  int size;
  struct scan *scans;
  long num_scans;
};

enum { SEGMENT = 32 };  // panels of logits that are scanned by themselves: sums don't depend on the number of threads

static void *renew(void *old, size_t count) {
  free(old);
  void *new = aligned_alloc(64, (count + 63) / 64 * 64);
  if (!new) abort();  // as the system would end us
  memset(new, 0, (count + 63) / 64 * 64);
  return new;
}

struct crew_buffers *buffers_new(int size) {
  struct crew_buffers *buffers = calloc(1, sizeof *buffers);
  buffers->size = size;
  buffers->own = calloc((size_t)size, sizeof *buffers->own);
  return buffers;
}

void buffers_free(struct crew_buffers *b) {
  for (int rank = 0; rank < b->size; rank++) {
    struct own *own = &b->own[rank];
    free(own->q), free(own->scale), free(own->normal), free(own->score), free(own->bias), free(own->sum);
    free(own->at);
  }
  struct recurrent_buffers *r = &b->recurrent;
  free(r->x), free(r->joint), free(r->even), free(r->odd), free(r->read), free(r->query), free(r->context);
  free(r->given), free(r->hidden), free(r->state);
  free(b->x), free(b->qkv), free(b->read), free(b->hidden), free(b->gate), free(b->own), free(b->scans), free(b);
}

static long panels(long n) { return (n + PANEL - 1) / PANEL * PANEL; }

static long widest(const struct model *model) {
  long hidden = panels(model->sizes.hidden), longest;
  if (is_recurrent(model)) recurrent_room(model, &hidden, &longest);
  if (panels(model->sizes.input) > hidden) hidden = panels(model->sizes.input);
  return hidden > model->stride ? hidden : model->stride;
}

static void reserve_own(const struct model *model, struct own *own, long rows, long steps) {
  if (own->room < rows) {
    own->room = rows;
    own->q = renew(own->q, (size_t)(rows * widest(model)));
    own->normal = renew(own->normal, (size_t)(rows * model->stride) * sizeof(float));
    own->scale = renew(own->scale, (size_t)rows * sizeof(float));
    own->sum = renew(own->sum, (size_t)rows * sizeof(int32_t));
  }
  if (own->steps < steps) {
    own->steps = (steps + 63) / 64 * 64;
    own->score = renew(own->score, (size_t)own->steps * sizeof(float));
    own->bias = renew(own->bias, (size_t)own->steps * sizeof(float));
    own->at = renew(own->at, (size_t)own->steps * sizeof(char *));
  }
}

// Makes room for rows that each attend to at most so many steps.
static void reserve(const struct model *model, struct crew *crew, int rank, long rows, long steps) {
  struct crew_buffers *b = crew->buffers;
  reserve_own(model, &b->own[rank], rows, steps);
  if (rank == 0 && b->room < rows) {
    b->room = rows;
    size_t count = (size_t)rows * sizeof(float);
    b->x = renew(b->x, count * (size_t)model->stride);
    b->read = renew(b->read, count * (size_t)model->stride);
    b->qkv = renew(b->qkv, count * (size_t)panels(3 * model->sizes.width));
    b->hidden = renew(b->hidden, count * (size_t)panels(model->sizes.hidden));
    b->gate = renew(b->gate, model->sizes.activation == 3 ? count * (size_t)panels(model->sizes.hidden) : 64);
  }
  crew_wait(crew);
}

struct recurrent_buffers *recurrent_buffers(struct crew *crew) { return &crew->buffers->recurrent; }

float *scores_of(struct crew *crew, int rank) { return crew->buffers->own[rank].score; }

void recurrent_reserve(const struct model *model, struct crew *crew, int rank, long rows, long steps) {
  struct recurrent_buffers *b = &crew->buffers->recurrent;
  reserve_own(model, &crew->buffers->own[rank], rows, steps);
  if (rank == 0 && b->room < rows) {
    long joint, longest, wide = panels(model->sizes.hidden);
    recurrent_room(model, &joint, &longest);
    if (longest < wide) longest = wide;
    b->room = rows;
    size_t count = (size_t)rows * sizeof(float);
    float **states[] = {&b->even, &b->odd, &b->read, &b->query, &b->context};
    for (int i = 0; i < 5; i++) *states[i] = renew(*states[i], count * (size_t)wide);
    b->x = renew(b->x, count * (size_t)model->stride);
    b->joint = renew(b->joint, count * (size_t)joint);
    b->given = renew(b->given, count * (size_t)longest + 64);  // a vector that begins in the last gate
    b->hidden = renew(b->hidden, count * (size_t)longest + 64);
    b->state = renew(b->state, 2 * count * (size_t)wide);
  }
  crew_wait(crew);
}

struct range share(const struct crew *crew, int rank, long count) {
  return (struct range){count * rank / crew->size, count * (rank + 1) / crew->size};
}

// What a matrix reads: rows, or their bytes.
static struct rows prepare(const struct model *model, struct own *own, const float *x, long count, long stride) {
  struct rows rows = {count, stride, x, 0, 0, 0};
  if (!model->sizes.is_int8) return rows;
  for (long row = 0; row < count; row++)
    model->kernels->quantize(x + row * stride, stride, own->q + row * stride, own->scale + row, own->sum + row);
  rows.q = own->q, rows.scale = own->scale, rows.sum = own->sum;
  return rows;
}

struct rows prepare_rows(const struct model *model, struct crew *crew, int rank, const float *x, long count, long stride) {
  return prepare(model, &crew->buffers->own[rank], x, count, stride);
}

static struct rows prepare_norm(const struct model *model, struct own *own, const struct norm *norm, const float *x,
                                long count) {
  long stride = model->stride;
  for (long row = 0; row < count; row++)
    model->kernels->normalize(x + row * stride, model->sizes.width, norm->weight, norm->bias,
                              (float)model->sizes.epsilon, own->normal + row * stride);
  return prepare(model, own, own->normal, count, stride);
}

// What a sublayer reads: its norm of x (pre-norm), or x.
static struct rows before(const struct model *model, struct own *own, const struct norm *norm, const float *x,
                          long count) {
  return model->sizes.is_pre ? prepare_norm(model, own, norm, x, count) : prepare(model, own, x, count, model->stride);
}

void multiply(const struct model *model, struct crew *crew, int rank, const struct rows *rows,
                     const struct matrix *w, enum mode mode, float *out, long stride) {
  struct range range = share(crew, rank, w->num_panels);
  model->kernels->product(rows, w, range.first, range.last, mode, out, stride);
}

// x += read W + b; with post-norm x is normalised then.
static void add(const struct model *model, struct crew *crew, int rank, const struct rows *rows, const struct matrix *w,
                const struct norm *norm, float *x) {
  multiply(model, crew, rank, rows, w, ADD, x, model->stride);
  crew_wait(crew);
  if (model->sizes.is_pre) return;
  struct range range = share(crew, rank, rows->count);
  for (long row = range.first; row < range.last; row++)
    model->kernels->normalize(x + row * model->stride, model->sizes.width, norm->weight, norm->bias,
                              (float)model->sizes.epsilon, x + row * model->stride);
  crew_wait(crew);
}

static void feed_forward(const struct model *model, struct crew *crew, int rank, const struct layer *layer, float *x,
                         long count) {
  struct crew_buffers *b = crew->buffers;
  struct own *own = &b->own[rank];
  long stride = panels(model->sizes.hidden);
  struct rows rows = before(model, own, &layer->feed_norm, x, count);
  static const enum mode modes[] = {RELU, GELU, SILU, SILU};
  multiply(model, crew, rank, &rows, &layer->inner, modes[model->sizes.activation], b->hidden, stride);
  if (model->sizes.activation == 3) multiply(model, crew, rank, &rows, &layer->gate, TIMES, b->hidden, stride);
  crew_wait(crew);
  rows = prepare(model, own, b->hidden, count, stride);
  add(model, crew, rank, &rows, &layer->outer, &layer->feed_norm, x);
}

static void add_position(const struct model *model, long place, float *x) {
  int64_t kind = model->sizes.positions;
  bool is_sinusoidal = kind == SINUSOIDAL || kind == SINUSOIDAL_HALVES;
  const float *position = is_sinusoidal ? model->table : kind == LEARNED ? model->positions : 0;
  for (long i = 0; position && i < model->sizes.width; i++) x[i] += position[place * model->stride + i];
}

void embed(const struct model *model, const struct matrix *w, int32_t id, long place, float *x) {
  long width = model->sizes.width, panel = id / PANEL, column = id % PANEL;
  float root = sqrtf((float)width);
  if (w->scale) {
    const uint8_t *weight = (const uint8_t *)w->weight + panel * ((width + 3) / 4) * 4 * PANEL + 4 * column;
    float scale = w->scale[id] * root;
    for (long i = 0; i < width; i++) x[i] = (float)((int)weight[i / 4 * 4 * PANEL + i % 4] - 128) * scale;
  } else {
    const float *weight = (const float *)w->weight + panel * width * PANEL + column;
    for (long i = 0; i < width; i++) x[i] = weight[i * PANEL] * root;
  }
  for (long i = width; i < model->stride; i++) x[i] = 0;
  add_position(model, place, x);
}

// Turns pairs of a head by the angles of a position (Su 2021).
static void rotate(const struct model *model, long place, float *x) {
  const float *at = model->table + place * model->head_width;
  for (long i = 0; i < model->head_width; i += 2) {
    float even = x[i], odd = x[i + 1];
    x[i] = even * at[i + 1] - odd * at[i];
    x[i + 1] = even * at[i] + odd * at[i + 1];
  }
}

long pair_size(const struct model *model) {
  long scales = 2 * model->sizes.num_heads * (long)sizeof(float);
  return model->sizes.is_int8 ? panels(2 * model->stride + scales) : 2 * model->stride * (long)sizeof(float);
}

long memory_size(const struct model *model, long count) {
  if (is_recurrent(model)) return recurrent_memory_size(model, count);
  return model->sizes.num_decoder * count * pair_size(model);
}

long entry_size(const struct model *model) {
  if (is_recurrent(model)) return recurrent_entry_size(model);
  return model->sizes.num_decoder * pair_size(model);
}

// Where a head is in a pair that is kept.
static struct place find_place(const struct model *model, long h) {
  long head = model->head_width, size = (long)sizeof(float);
  if (model->sizes.is_int8) return (struct place){h * head, model->stride + h * head, 2 * model->stride + 2 * h * size};
  return (struct place){h * head * size, (model->stride + h * head) * size, 0};
}

static void keep(const struct model *model, long h, const float *key, const float *value, char *pair) {
  struct place place = find_place(model, h);
  long head = model->head_width;
  if (model->sizes.is_int8) {
    float *scale = (float *)(void *)(pair + place.scale);
    model->kernels->keep_bytes(key, head, pair + place.key, scale);
    model->kernels->keep_bytes(value, head, pair + place.value, scale + 1);
  } else {
    memcpy(pair + place.key, key, (size_t)head * sizeof(float));
    memcpy(pair + place.value, value, (size_t)head * sizeof(float));
  }
}

static void attend_kept(const struct model *model, struct own *own, long h, const float *q, const float *bias, long count,
                        const char *const *at, float *out) {
  long head = model->head_width;
  (model->sizes.is_int8 ? model->kernels->attend_bytes : model->kernels->attend)(
      q, head, 1.0f / sqrtf((float)head), bias, count, at, find_place(model, h), own->score, out);
}

static long clamp(long x, long least, long most) { return x < least ? least : x > most ? most : x; }

static long count_steps(long count, struct memory *const *memories, long *longest) {
  long total = 0;
  *longest = 0;
  for (long n = 0; n < count; n++) {
    total += memories[n]->count;
    *longest = memories[n]->count > *longest ? memories[n]->count : *longest;
  }
  return total;
}

// The encoder's blocks, over the rows of `x` that lie in the crew's buffers.
static void run_blocks(const struct model *model, struct crew *crew, int rank, long count, long total,
                       struct memory *const *memories) {
  const struct sizes *sizes = &model->sizes;
  long width = sizes->width, head = model->head_width, wide = panels(3 * width);
  const long size = (long)sizeof(float);
  struct crew_buffers *b = crew->buffers;
  struct own *own = &b->own[rank];
  struct range range = share(crew, rank, total);
  for (long l = 0; l < sizes->num_encoder; l++) {
    const struct layer *layer = &model->encoder[l];
    struct rows rows = before(model, own, &layer->own_norm, b->x, total);
    multiply(model, crew, rank, &rows, &layer->own, SET, b->qkv, wide);
    crew_wait(crew);
    if (sizes->positions == ROTARY) {
      for (long n = 0, row = 0; n < count; n++)
        for (long t = 0; t < memories[n]->count; t++, row++)
          if (row >= range.first && row < range.last)
            for (long h = 0; h < 2 * sizes->num_heads; h++) rotate(model, t, b->qkv + row * wide + h * head);
      crew_wait(crew);
    }
    for (long n = 0, first = 0; n < count; first += memories[n++]->count) {
      long steps = memories[n]->count;
      if (first >= range.last || first + steps <= range.first) continue;
      for (long s = 0; s < steps; s++) own->at[s] = (const char *)(b->qkv + (first + s) * wide);
      for (long h = 0; h < sizes->num_heads; h++)
        for (long t = 0; t < steps; t++) {
          long row = first + t, low = 0, high = steps;
          if (row < range.first || row >= range.last) continue;
          if (sizes->window >= 0) low = clamp(t - sizes->window, 0, steps), high = clamp(t + sizes->window + 1, 0, steps);
          for (long s = low; model->encoder_bias && s < high; s++)
            own->bias[s] = model->encoder_bias[h * (2 * sizes->distance + 1) + sizes->distance +
                                               clamp(s - t, -sizes->distance, sizes->distance)];
          model->kernels->attend(b->qkv + row * wide + h * head, head, 1.0f / sqrtf((float)head),
                                 model->encoder_bias ? own->bias + low : 0, high - low, own->at + low,
                                 (struct place){(width + h * head) * size, (2 * width + h * head) * size, 0}, own->score,
                                 b->read + row * model->stride + h * head);
        }
    }
    crew_wait(crew);
    rows = prepare(model, own, b->read, total, model->stride);
    add(model, crew, rank, &rows, &layer->own_out, &layer->own_norm, b->x);
    feed_forward(model, crew, rank, layer, b->x, total);
  }
}

void read_blocks(const struct model *model, struct crew *crew, int rank, long count, struct memory *const *memories,
                 const float *x, float *out) {
  long longest, total = count_steps(count, memories, &longest), stride = model->stride;
  reserve(model, crew, rank, total, longest + LANES);
  struct crew_buffers *b = crew->buffers;
  struct range range = share(crew, rank, total);
  if (model->sizes.input != model->sizes.width) {
    struct rows rows = prepare(model, &b->own[rank], x, total, panels(model->sizes.input));
    multiply(model, crew, rank, &rows, &model->source, SET, b->x, stride);
  } else {
    memcpy(b->x + range.first * stride, x + range.first * stride,
           (size_t)((range.last - range.first) * stride) * sizeof(float));
  }
  crew_wait(crew);
  for (long n = 0, row = 0; n < count; n++)
    for (long t = 0; t < memories[n]->count; t++, row++)
      if (row >= range.first && row < range.last) add_position(model, t, b->x + row * stride);
  crew_wait(crew);
  run_blocks(model, crew, rank, count, total, memories);
  for (long row = range.first; row < range.last; row++) {
    const struct norm *norm = &model->encoder_norm;
    if (model->sizes.is_pre)
      model->kernels->normalize(b->x + row * stride, model->sizes.width, norm->weight, norm->bias,
                                (float)model->sizes.epsilon, out + row * stride);
    else
      memcpy(out + row * stride, b->x + row * stride, (size_t)stride * sizeof(float));
  }
  crew_wait(crew);
}

void encode(const struct model *model, struct crew *crew, int rank, long count, const int32_t *const *ids,
            struct memory *const *memories) {
  if (is_recurrent(model)) {
    recurrent_encode(model, crew, rank, count, ids, memories);
    return;
  }
  const struct sizes *sizes = &model->sizes;
  long longest, total = count_steps(count, memories, &longest);
  long width = sizes->width, head = model->head_width, wide = panels(3 * width);
  reserve(model, crew, rank, total, longest + LANES);
  struct crew_buffers *b = crew->buffers;
  struct own *own = &b->own[rank];
  struct range range = share(crew, rank, total);
  for (long n = 0, row = 0; n < count; n++)
    for (long t = 0; t < memories[n]->count; t++, row++)
      if (row >= range.first && row < range.last)
        embed(model, &model->source, ids[n][t], t, b->x + row * model->stride);
  crew_wait(crew);
  run_blocks(model, crew, rank, count, total, memories);
  struct rows rows = sizes->is_pre ? prepare_norm(model, own, &model->encoder_norm, b->x, total)
                                   : prepare(model, own, b->x, total, model->stride);
  for (long l = 0; l < sizes->num_decoder; l++) {
    multiply(model, crew, rank, &rows, &model->decoder[l].cross_memory, SET, b->qkv, wide);
    crew_wait(crew);
    for (long n = 0, row = 0; n < count; n++)
      for (long s = 0; s < memories[n]->count; s++, row++)
        for (long h = 0; row >= range.first && row < range.last && h < sizes->num_heads; h++)
          keep(model, h, b->qkv + row * wide + h * head, b->qkv + row * wide + width + h * head,
               memories[n]->pairs + (l * memories[n]->count + s) * pair_size(model));
    crew_wait(crew);
  }
}

// Asks for a row's keys and values of a layer, while those of the row before it are read.
static void fetch(const char *const *at, long count, long first, long size) {
  for (long s = 0; s < count; s++)
    for (long i = 0; i < size; i += 64) __builtin_prefetch(at[s] + first + i, 0, 2);
}

static void fetch_past(const struct model *model, const struct row *row, long layer) {
  long low = model->sizes.window < 0 ? 0 : clamp(row->step - model->sizes.window, 0, row->step);
  fetch((const char *const *)row->past + low, row->step - low, layer * pair_size(model), pair_size(model));
}

static void fetch_memory(const struct model *model, const struct memory *memory, long layer) {
  const char *at = memory->pairs + layer * memory->count * pair_size(model);
  fetch(&at, 1, 0, memory->count * pair_size(model));
}

// The self-attention of one head of a row, which also keeps its key and value.
static void attend_past(const struct model *model, struct own *own, const struct row *row, long layer, long h, float *qkv,
                        float *read) {
  const struct sizes *sizes = &model->sizes;
  long head = model->head_width, width = sizes->width, first = layer * pair_size(model);
  float *q = qkv + h * head;
  if (sizes->positions == ROTARY) rotate(model, row->step, q), rotate(model, row->step, q + width);
  keep(model, h, q + width, q + 2 * width, row->entry + first);
  long count = row->step + 1, low = sizes->window < 0 ? 0 : clamp(row->step - sizes->window, 0, row->step);
  for (long s = low; s < count; s++) {
    own->at[s] = row->past[s] + first;
    if (model->decoder_bias)
      own->bias[s] = model->decoder_bias[h * (sizes->distance + 1) + clamp(row->step - s, 0, sizes->distance)];
  }
  attend_kept(model, own, h, q, model->decoder_bias ? own->bias + low : 0, count - low, own->at + low, read + h * head);
}

void decode(const struct model *model, struct crew *crew, int rank, long count, const struct row *rows, float *out) {
  if (is_recurrent(model)) {
    recurrent_decode(model, crew, rank, count, rows, out);
    return;
  }
  const struct sizes *sizes = &model->sizes;
  long longest = 0, width = sizes->width, head = model->head_width, wide = panels(3 * width);
  for (long n = 0; n < count; n++) {
    longest = rows[n].step + 1 > longest ? rows[n].step + 1 : longest;
    longest = rows[n].memory->count > longest ? rows[n].memory->count : longest;
  }
  reserve(model, crew, rank, count, longest + LANES);
  struct crew_buffers *b = crew->buffers;
  struct own *own = &b->own[rank];
  struct range range = share(crew, rank, count), heads = share(crew, rank, count * sizes->num_heads);
  for (long n = range.first; n < range.last; n++)
    embed(model, &model->target, rows[n].id, rows[n].step, b->x + n * model->stride);
  crew_wait(crew);
  for (long l = 0; l < sizes->num_decoder; l++) {
    const struct layer *layer = &model->decoder[l];
    struct rows read = before(model, own, &layer->own_norm, b->x, count);
    multiply(model, crew, rank, &read, &layer->own, SET, b->qkv, wide);
    crew_wait(crew);
    for (long i = heads.first; i < heads.last; i++) {
      long n = i / sizes->num_heads;
      if (i % sizes->num_heads == 0 && n + 1 < count) fetch_past(model, &rows[n + 1], l);
      attend_past(model, own, &rows[n], l, i % sizes->num_heads, b->qkv + n * wide, b->read + n * model->stride);
    }
    crew_wait(crew);
    read = prepare(model, own, b->read, count, model->stride);
    add(model, crew, rank, &read, &layer->own_out, &layer->own_norm, b->x);
    read = before(model, own, &layer->cross_norm, b->x, count);
    multiply(model, crew, rank, &read, &layer->cross_query, SET, b->qkv, wide);
    crew_wait(crew);
    const struct memory *last = 0;
    for (long i = heads.first; i < heads.last; i++) {
      long n = i / sizes->num_heads, h = i % sizes->num_heads;
      const struct memory *memory = rows[n].memory;
      if (i % sizes->num_heads == 0 && n + 1 < count && rows[n + 1].memory != memory)
        fetch_memory(model, rows[n + 1].memory, l);
      if (memory != last)
        for (long s = 0; s < memory->count; s++)
          own->at[s] = memory->pairs + (l * memory->count + s) * pair_size(model);
      last = memory;
      attend_kept(model, own, h, b->qkv + n * wide + h * head, 0, memory->count, own->at,
                  b->read + n * model->stride + h * head);
    }
    crew_wait(crew);
    read = prepare(model, own, b->read, count, model->stride);
    add(model, crew, rank, &read, &layer->cross_out, &layer->cross_norm, b->x);
    feed_forward(model, crew, rank, layer, b->x, count);
  }
  for (long n = range.first; n < range.last; n++) {
    float *x = b->x + n * model->stride, *y = out + n * model->stride;
    if (sizes->is_pre)
      model->kernels->normalize(x, width, model->decoder_norm.weight, model->decoder_norm.bias, (float)sizes->epsilon, y);
    else
      memcpy(y, x, (size_t)model->stride * sizeof(float));
  }
  crew_wait(crew);
}

void write_logits(const struct model *model, struct crew *crew, int rank, long count, const float *vectors, float *out,
                  long stride) {
  reserve(model, crew, rank, count, 1);
  struct rows rows = prepare(model, &crew->buffers->own[rank], vectors, count, model->stride);
  multiply(model, crew, rank, &rows, &model->output, SET, out, stride);
  crew_wait(crew);
}

void copy_outputs(const struct model *model, const int32_t *ids, struct matrix *into) {
  const struct matrix *from = &model->output;
  long groups = from->scale ? (from->num_in + 3) / 4 : from->num_in;  // of 4 bytes, for each output
  uint32_t *to = (uint32_t *)into->weight;
  const uint32_t *weight = from->weight;
  for (long i = 0; i < into->num_panels * PANEL; i++) {
    bool is_real = i < into->num_out;
    ((float *)into->bias)[i] = is_real ? from->bias[ids[i]] : -INFINITY;
    if (from->scale) ((float *)into->scale)[i] = is_real ? from->scale[ids[i]] : 0.0f;
    long place = i / PANEL * groups * PANEL + i % PANEL, old = is_real ? ids[i] / PANEL * groups * PANEL + ids[i] % PANEL : 0;
    for (long k = 0; k < groups; k++) to[place + k * PANEL] = is_real ? weight[old + k * PANEL] : 0;
  }
}

void scan_shortlist(const struct model *model, struct crew *crew, int rank, long count, const float *vectors,
                    const struct shortlist *shortlist, struct scan *scans) {
  reserve(model, crew, rank, count, 1);
  struct rows rows = prepare(model, &crew->buffers->own[rank], vectors, count, model->stride);
  long stride = shortlist->matrix.num_panels * PANEL;
  multiply(model, crew, rank, &rows, &shortlist->matrix, SET, shortlist->logits, stride);
  crew_wait(crew);
  struct range range = share(crew, rank, count);
  for (long n = range.first; n < range.last; n++)
    model->kernels->scan_some(shortlist->logits + n * stride, shortlist->columns[n], shortlist->counts[n], &scans[n]);
  crew_wait(crew);
}

static void merge(struct scan *into, const struct scan *part) {
  if (part->max > into->max)
    into->sum = into->sum * expf(into->max - part->max) + part->sum, into->max = part->max;
  else
    into->sum += part->sum * expf(part->max - into->max);
  if (part->watched_logit > into->watched_logit) into->watched_logit = part->watched_logit;
  for (int i = 0; i < part->num_best; i++) {
    float x = part->best[i];
    int at = into->num_best - 1;
    if (!(x > into->best[at])) break;
    for (; at && x > into->best[at - 1]; at--) into->best[at] = into->best[at - 1], into->id[at] = into->id[at - 1];
    into->best[at] = x, into->id[at] = part->id[i];
  }
}

void scan_logits(const struct model *model, struct crew *crew, int rank, long count, const float *vectors,
                 struct scan *scans) {
  struct crew_buffers *b = crew->buffers;
  long segments = (model->output.num_panels + SEGMENT - 1) / SEGMENT;
  reserve(model, crew, rank, count, 1);
  if (rank == 0 && b->num_scans < count * segments) {
    b->num_scans = count * segments;
    b->scans = renew(b->scans, (size_t)b->num_scans * sizeof *b->scans);
  }
  struct rows rows = prepare(model, &b->own[rank], vectors, count, model->stride);
  crew_wait(crew);
  struct range range = share(crew, rank, segments);
  for (long segment = range.first; segment < range.last; segment++) {
    for (long n = 0; n < count; n++) {
      struct scan *part = &b->scans[n * segments + segment];
      part->banned = scans[n].banned, part->watched = scans[n].watched, part->num_best = scans[n].num_best;
    }
    long last = (segment + 1) * SEGMENT, most = model->output.num_panels;
    model->kernels->scan(&rows, &model->output, segment * SEGMENT, last < most ? last : most, b->scans + segment,
                         segments);
  }
  crew_wait(crew);
  range = share(crew, rank, count);
  for (long n = range.first; n < range.last; n++) {
    struct scan *found = &scans[n];
    *found = b->scans[n * segments];
    for (long segment = 1; segment < segments; segment++) merge(found, &b->scans[n * segments + segment]);
  }
  crew_wait(crew);
}
