// The RNN encoder-decoders: reads sources, and takes a step of the decoder. All threads of a crew call a function
// together. The vectors that the output layer reads have `sizes.width` columns, as embeddings have; states `sizes.hidden`.
#include <math.h>
#include <string.h>

#include "native.h"

struct shape {  // what the sizes say, in floats; strides are rounded up to panels
  long width, hidden, stride, wide, num_gates, num_layers, num_states, fed, side, num_sides;
};

static struct shape shape_of(const struct model *model) {
  const struct sizes *sizes = &model->sizes;
  struct shape s = {sizes->width, sizes->hidden, model->stride, round_up(sizes->hidden, PANEL)};
  s.num_gates = sizes->cell == RNN ? 1 : sizes->cell == GRU ? 3 : 4, s.num_states = sizes->cell == LSTM ? 2 : 1;
  s.num_layers = sizes->num_encoder;
  s.fed = sizes->kind == BAHDANAU ? s.hidden : sizes->kind == LUONG_FED ? s.width : 0;
  s.num_sides = sizes->direction == BOTH ? 2 : 1, s.side = s.hidden / s.num_sides;
  return s;
}

// A state: h (and c) of each layer, and what is fed to the next step.
static long state_floats(const struct shape *s) { return s->num_layers * s->num_states * s->wide + s->stride; }

static float *layer_state(const struct shape *s, char *state, long layer, long which) {
  return (float *)(void *)state + (layer * s->num_states + which) * s->wide;
}

static float *fed_of(const struct shape *s, char *state) { return layer_state(s, state, s->num_layers, 0); }

long recurrent_entry_size(const struct model *model) {
  struct shape s = shape_of(model);
  return state_floats(&s) * (long)sizeof(float);
}

// The first state, then keys, then values.
long recurrent_memory_size(const struct model *model, long count) {
  struct shape s = shape_of(model);
  return (state_floats(&s) + 2 * count * s.wide) * (long)sizeof(float);
}

static float *keys_of(const struct shape *s, const struct memory *memory) {
  return (float *)(void *)memory->pairs + state_floats(s);
}

static float *values_of(const struct shape *s, const struct memory *memory) {
  return keys_of(s, memory) + memory->count * s->wide;
}

// The widest row that is multiplied, and the longest one that comes of it.
void recurrent_room(const struct model *model, long *widest, long *longest) {
  struct shape s = shape_of(model);
  *widest = round_up(2 * s.hidden + s.width + s.fed, PANEL);
  long gates = round_up(s.num_gates * s.hidden, PANEL), read = round_up(2 * s.width, PANEL);
  *longest = gates > read ? gates : read;
}

static void apply_cell(const struct model *model, const struct shape *s, long width, const float *given,
                       const float *hidden, const float *const *before, float *const *after) {
  model->kernels->cell((int)s->num_gates, width, given, hidden, before[0], s->num_states > 1 ? before[1] : 0, after[0],
                       s->num_states > 1 ? after[1] : 0);
}

// Runs one direction of a layer over all steps of all sources: x [row][stride] to out [row][wide], from a column on.
static void run_side(const struct model *model, struct crew *crew, int rank, const struct cell *cell, long count,
                     struct memory *const *memories, long layer, long side, const float *x, long stride, float *out) {
  struct shape s = shape_of(model);
  struct recurrent_buffers *b = recurrent_buffers(crew);
  bool is_reversed = model->sizes.direction == BACKWARD || side == 1;
  long total = 0, longest = 0, gates = round_up(s.num_gates * s.side, PANEL), wide = round_up(s.side, PANEL);
  for (long n = 0; n < count; n++) {
    total += memories[n]->count;
    longest = memories[n]->count > longest ? memories[n]->count : longest;
  }
  struct rows rows = prepare_rows(model, crew, rank, x, total, stride);
  multiply(model, crew, rank, &rows, &cell->input, SET, b->given, gates);
  if (rank == 0) memset(b->state, 0, (size_t)(count * s.num_states * wide) * sizeof(float));
  crew_wait(crew);
  for (long t = 0; t < longest; t++) {
    long active = 0;
    for (long n = 0; n < count; n++) {
      if (memories[n]->count <= t) continue;
      if (rank == 0) memcpy(b->read + active * wide, b->state + n * s.num_states * wide, (size_t)wide * sizeof(float));
      active++;
    }
    crew_wait(crew);
    rows = prepare_rows(model, crew, rank, b->read, active, wide);
    multiply(model, crew, rank, &rows, &cell->hidden, SET, b->hidden, gates);
    crew_wait(crew);
    struct range range = share(crew, rank, active);
    for (long n = 0, at = 0, first = 0; n < count; first += memories[n++]->count) {
      if (memories[n]->count <= t) continue;
      if (at >= range.first && at < range.last) {
        float *own = b->state + n * s.num_states * wide, *both[2] = {own, own + wide};
        const float *before[2] = {own, own + wide};
        long row = first + (is_reversed ? memories[n]->count - 1 - t : t);
        apply_cell(model, &s, s.side, b->given + row * gates, b->hidden + at * gates, before, both);
        memcpy(out + row * s.wide + side * s.side, own, (size_t)s.side * sizeof(float));
      }
      at++;
    }
    crew_wait(crew);
  }
  struct range range = share(crew, rank, count);
  for (long n = range.first; n < range.last; n++)
    for (long which = 0; which < s.num_states; which++)
      memcpy(layer_state(&s, memories[n]->pairs, layer, which) + side * s.side,
             b->state + (n * s.num_states + which) * wide, (size_t)s.side * sizeof(float));
  crew_wait(crew);
}

// s_0 = tanh(W h) of each layer (Bahdanau 2015, appendix A.2.2).
static void bridge(const struct model *model, struct crew *crew, int rank, long count, struct memory *const *memories) {
  struct shape s = shape_of(model);
  struct recurrent_buffers *b = recurrent_buffers(crew);
  for (long l = 0; l < s.num_layers; l++) {
    struct range range = share(crew, rank, count);
    for (long n = range.first; n < range.last; n++)
      memcpy(b->read + n * s.wide, layer_state(&s, memories[n]->pairs, l, 0), (size_t)s.wide * sizeof(float));
    crew_wait(crew);
    struct rows rows = prepare_rows(model, crew, rank, b->read, count, s.wide);
    multiply(model, crew, rank, &rows, &model->recurrent.bridge, TANH, b->hidden, s.wide);
    crew_wait(crew);
    for (long n = range.first; n < range.last; n++)
      memcpy(layer_state(&s, memories[n]->pairs, l, 0), b->hidden + n * s.wide, (size_t)s.hidden * sizeof(float));
    crew_wait(crew);
  }
}

// Runs all layers over rows x, and returns where the rows of the last one lie.
static const float *run_layers(const struct model *model, struct crew *crew, int rank, long count, long total,
                               struct memory *const *memories, const float *x) {
  struct shape s = shape_of(model);
  struct recurrent_buffers *b = recurrent_buffers(crew);
  struct range range = share(crew, rank, total), own = share(crew, rank, count);
  for (long n = own.first; n < own.last; n++) memset(memories[n]->pairs, 0, (size_t)recurrent_entry_size(model));
  for (long row = range.first; row < range.last; row++) {
    memset(b->even + row * s.wide, 0, (size_t)s.wide * sizeof(float));
    memset(b->odd + row * s.wide, 0, (size_t)s.wide * sizeof(float));
  }
  crew_wait(crew);
  for (long l = 0; l < s.num_layers; l++) {
    float *out = l % 2 ? b->odd : b->even;
    for (long side = 0; side < s.num_sides; side++)
      run_side(model, crew, rank, &model->recurrent.encoder[l * s.num_sides + side], count, memories, l, side, x,
               l ? s.wide : s.stride, out);
    x = out;
  }
  return x;
}

void recurrent_read(const struct model *model, struct crew *crew, int rank, long count, struct memory *const *memories,
                    const float *x, float *out, float *last) {
  struct shape s = shape_of(model);
  long total = 0;
  for (long n = 0; n < count; n++) total += memories[n]->count;
  recurrent_reserve(model, crew, rank, total, LANES);
  x = run_layers(model, crew, rank, count, total, memories, x);
  struct range range = share(crew, rank, total), own = share(crew, rank, count);
  memcpy(out + range.first * s.wide, x + range.first * s.wide,
         (size_t)((range.last - range.first) * s.wide) * sizeof(float));
  for (long n = own.first; n < own.last; n++)
    memcpy(last + n * s.wide, layer_state(&s, memories[n]->pairs, s.num_layers - 1, 0), (size_t)s.wide * sizeof(float));
  crew_wait(crew);
}

void recurrent_encode(const struct model *model, struct crew *crew, int rank, long count, const int32_t *const *ids,
                      struct memory *const *memories) {
  struct shape s = shape_of(model);
  const struct recurrent *network = &model->recurrent;
  long total = 0;
  for (long n = 0; n < count; n++) total += memories[n]->count;
  recurrent_reserve(model, crew, rank, total > count ? total : count, LANES);
  struct recurrent_buffers *b = recurrent_buffers(crew);
  struct range range = share(crew, rank, total);
  for (long n = 0, row = 0; n < count; n++)
    for (long t = 0; t < memories[n]->count; t++, row++)
      if (row >= range.first && row < range.last) embed(model, &model->source, ids[n][t], t, b->x + row * s.stride);
  const float *x = run_layers(model, crew, rank, count, total, memories, b->x);
  if (model->sizes.kind == PLAIN) return;
  if (model->sizes.kind == BAHDANAU) bridge(model, crew, rank, count, memories);
  const float *keys = x;
  if (model->sizes.score == GENERAL || model->sizes.score == ADDITIVE) {
    struct rows rows = prepare_rows(model, crew, rank, x, total, s.wide);
    multiply(model, crew, rank, &rows, &network->key, SET, b->given, s.wide);
    keys = b->given;
  }
  crew_wait(crew);
  for (long n = 0, row = 0; n < count; n++)
    for (long t = 0; t < memories[n]->count; t++, row++) {
      if (row < range.first || row >= range.last) continue;
      memcpy(keys_of(&s, memories[n]) + t * s.wide, keys + row * s.wide, (size_t)s.wide * sizeof(float));
      memcpy(values_of(&s, memories[n]) + t * s.wide, x + row * s.wide, (size_t)s.wide * sizeof(float));
    }
  crew_wait(crew);
}

// What each row read of its source, for queries [row][wide].
static void attend_to_sources(const struct model *model, struct crew *crew, int rank, long count, const struct row *rows,
                              const float *query, long stride, float *out, long out_stride) {
  struct shape s = shape_of(model);
  struct recurrent_buffers *b = recurrent_buffers(crew);
  bool is_additive = model->sizes.score == ADDITIVE;
  if (is_additive) {
    struct rows read = prepare_rows(model, crew, rank, query, count, stride);
    multiply(model, crew, rank, &read, &model->recurrent.query, SET, b->query, s.wide);
    crew_wait(crew);
    query = b->query, stride = s.wide;
  }
  float scale = model->sizes.score == SCALED_DOT ? 1.0f / sqrtf((float)s.hidden) : 1.0f;
  struct range range = share(crew, rank, count);
  for (long n = range.first; n < range.last; n++) {
    const struct memory *memory = rows[n].memory;
    model->kernels->attend_source(query + n * stride, s.hidden, scale, is_additive ? model->recurrent.v : 0,
                                  memory->count, keys_of(&s, memory), values_of(&s, memory), s.wide,
                                  scores_of(crew, rank), out + n * out_stride);
  }
  crew_wait(crew);
}

void recurrent_decode(const struct model *model, struct crew *crew, int rank, long count, const struct row *rows,
                      float *out) {
  struct shape s = shape_of(model);
  const struct recurrent *network = &model->recurrent;
  enum kind_of_model kind = (enum kind_of_model)model->sizes.kind;
  long longest = 1;
  for (long n = 0; n < count; n++) longest = rows[n].memory->count > longest ? rows[n].memory->count : longest;
  recurrent_reserve(model, crew, rank, count, longest + LANES);
  struct recurrent_buffers *b = recurrent_buffers(crew);
  struct range range = share(crew, rank, count);
  long first = round_up(s.width + s.fed, PANEL), gates = round_up(s.num_gates * s.hidden, PANEL);
  long top = (s.num_layers - 1) * s.num_states * s.wide;
  for (long n = range.first; n < range.last; n++) {
    const struct row *row = &rows[n];
    const char *before = row->step ? row->past[row->step - 1] : row->memory->pairs;
    memcpy(row->entry, before, (size_t)recurrent_entry_size(model));
    float *x = b->joint + n * first;
    memset(x, 0, (size_t)first * sizeof(float));
    embed(model, &model->target, row->id, 0, b->x + n * s.stride);
    memcpy(x, b->x + n * s.stride, (size_t)s.width * sizeof(float));
    if (kind == LUONG_FED) memcpy(x + s.width, fed_of(&s, row->entry), (size_t)s.fed * sizeof(float));
    if (kind == BAHDANAU) memcpy(b->read + n * s.wide, (float *)(void *)row->entry + top, (size_t)s.wide * sizeof(float));
  }
  crew_wait(crew);
  if (kind == BAHDANAU) {
    attend_to_sources(model, crew, rank, count, rows, b->read, s.wide, b->context, s.wide);
    for (long n = range.first; n < range.last; n++)
      memcpy(b->joint + n * first + s.width, b->context + n * s.wide, (size_t)s.hidden * sizeof(float));
    crew_wait(crew);
  }
  const float *x = b->joint;
  for (long l = 0; l < s.num_layers; l++) {
    struct rows read = prepare_rows(model, crew, rank, x, count, l ? s.wide : first);
    multiply(model, crew, rank, &read, &network->decoder[l].input, SET, b->given, gates);
    for (long n = range.first; n < range.last; n++)
      memcpy(b->read + n * s.wide, layer_state(&s, rows[n].entry, l, 0), (size_t)s.wide * sizeof(float));
    crew_wait(crew);
    read = prepare_rows(model, crew, rank, b->read, count, s.wide);
    multiply(model, crew, rank, &read, &network->decoder[l].hidden, SET, b->hidden, gates);
    crew_wait(crew);
    for (long n = range.first; n < range.last; n++) {
      float *after[2] = {layer_state(&s, rows[n].entry, l, 0), layer_state(&s, rows[n].entry, l, 1)};
      const float *before[2] = {after[0], after[1]};
      apply_cell(model, &s, s.hidden, b->given + n * gates, b->hidden + n * gates, before, after);
      memcpy(b->even + n * s.wide, after[0], (size_t)s.wide * sizeof(float));
    }
    crew_wait(crew);
    x = b->even;
  }
  if (kind == LUONG || kind == LUONG_FED) attend_to_sources(model, crew, rank, count, rows, x, s.wide, b->context, s.wide);
  long joint = kind == PLAIN ? s.hidden : kind == BAHDANAU ? 2 * s.hidden + s.width : 2 * s.hidden;
  long stride = round_up(joint, PANEL);
  for (long n = range.first; n < range.last; n++) {
    float *to = b->joint + n * stride, *state = b->even + n * s.wide, *context = b->context + n * s.wide;
    memset(to, 0, (size_t)stride * sizeof(float));
    size_t hidden = (size_t)s.hidden * sizeof(float);
    if (kind == PLAIN) memcpy(to, state, hidden);
    if (kind == BAHDANAU) {
      memcpy(to, state, hidden), memcpy(to + s.hidden, b->x + n * s.stride, (size_t)s.width * sizeof(float));
      memcpy(to + s.hidden + s.width, context, hidden);
    }
    if (kind == LUONG || kind == LUONG_FED) memcpy(to, context, hidden), memcpy(to + s.hidden, state, hidden);
  }
  crew_wait(crew);
  struct rows read = prepare_rows(model, crew, rank, b->joint, count, stride);
  long read_stride = round_up(kind == BAHDANAU ? 2 * s.width : s.width, PANEL);
  multiply(model, crew, rank, &read, &network->readout, kind == PLAIN || kind == BAHDANAU ? SET : TANH, b->given,
           read_stride);
  crew_wait(crew);
  for (long n = range.first; n < range.last; n++) {
    float *to = out + n * s.stride;
    const float *from = b->given + n * read_stride;
    memset(to, 0, (size_t)s.stride * sizeof(float));
    for (long i = 0; i < s.width; i++)  // maxout of pairs
      to[i] = kind != BAHDANAU ? from[i] : from[2 * i] > from[2 * i + 1] ? from[2 * i] : from[2 * i + 1];
    if (kind == LUONG_FED) memcpy(fed_of(&s, rows[n].entry), to, (size_t)s.width * sizeof(float));
  }
  crew_wait(crew);
}
