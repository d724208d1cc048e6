// Vectors of texts in, vectors of texts out: the encoders of classifiers and taggers.
#include <stdlib.h>

#include "native.h"

struct reading {
  struct model *model;
  long count;
  struct memory **memories;
  const float *x;
  float *out, *last;
};

static void read_part(void *with, int rank) {
  struct reading *now = with;
  struct crew *crew = now->model->together;
  if (now->model->sizes.kind == CELLS)
    recurrent_read(now->model, crew, rank, now->count, now->memories, now->x, now->out, now->last);
  else
    read_blocks(now->model, crew, rank, now->count, now->memories, now->x, now->out);
}

// Reads the steps of all texts, one after the other: x [step][input] to out [step][width], both rounded up to 64; of
// cells also the last state of each text, last [text][width]. 1 if there was no memory.
EXPORT int saccade_read(struct model *model, long count, const int32_t *lengths, const float *x, float *out, float *last) {
  enum { AT_ONCE = 512 };  // steps that are read together; what is found does not depend on it
  bool is_cells = model->sizes.kind == CELLS;
  long in = round_up(model->sizes.input, PANEL), wide = is_cells ? round_up(model->sizes.hidden, PANEL) : model->stride;
  long state = is_cells ? recurrent_entry_size(model) : 0;
  struct memory *all = calloc((size_t)count + 1, sizeof *all);
  struct memory **memories = calloc((size_t)count + 1, sizeof *memories);
  char *states = calloc((size_t)(state * count) + 1, 1);
  bool has_room = all && memories && states;
  struct reading now = {model, 0, memories, x, out, last};
  pthread_mutex_lock(&model->lock);
  for (long n = 0, steps = 0; has_room && n < count; n++) {
    all[n] = (struct memory){lengths[n], states + n * state};
    extend_table(model, lengths[n]);
    now.memories[now.count++] = &all[n];
    steps += lengths[n];
    if (n + 1 < count && steps < AT_ONCE) continue;
    pool_run(model->pool, read_part, &now);
    now.x += steps * in, now.out += steps * wide, now.last += is_cells ? now.count * wide : 0;
    now.count = steps = 0;
  }
  pthread_mutex_unlock(&model->lock);
  free(all), free(memories), free(states);
  return !has_room;
}
