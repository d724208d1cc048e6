// Steps that a search outside asks for: rows of a batch, whose pasts are pointers that the caller keeps.
#include <stdlib.h>
#include <string.h>

#include "native.h"

struct batch {
  struct model *model;
  long count;
  struct memory *memories;
  char **blocks;  // of keys and values of steps
  long num_blocks;
};

EXPORT void saccade_end(struct batch *batch) {
  for (long n = 0; n < batch->count; n++) free(batch->memories[n].pairs);
  for (long n = 0; n < batch->num_blocks; n++) free(batch->blocks[n]);
  free(batch->memories);
  free(batch->blocks);
  free(batch);
}

struct start {
  struct batch *batch;
  const int32_t **ids;
  struct memory **memories;
  long count;
};

static void encode_part(void *with, int rank) {
  struct start *start = with;
  encode(start->batch->model, start->batch->model->together, rank, start->count, start->ids, start->memories);
}

// Reads sources, `ids` one after the other; null where there is no memory.
EXPORT struct batch *saccade_start(struct model *model, long count, const int32_t *lengths, const int32_t *ids) {
  enum { AT_ONCE = 512 };  // steps that are encoded together; what is found does not depend on it
  struct batch *batch = calloc(1, sizeof *batch);
  batch->model = model;
  batch->memories = calloc((size_t)count + 1, sizeof *batch->memories);
  const int32_t **own = calloc((size_t)count + 1, sizeof *own);
  struct memory **memories = calloc((size_t)count + 1, sizeof *memories);
  pthread_mutex_lock(&model->lock);
  struct start start = {batch, own, memories, 0};
  long steps = 0;
  for (long n = 0; n < count; n++, batch->count++) {
    struct memory *memory = &batch->memories[n];
    memory->count = lengths[n];
    memory->pairs = aligned_alloc(64, (size_t)memory_size(model, lengths[n]));
    if (!memory->pairs) {
      saccade_end(batch);
      batch = 0;
      break;
    }
    own[start.count] = ids, memories[start.count++] = memory;
    ids += lengths[n], steps += lengths[n];
    extend_table(model, lengths[n]);
    if (n + 1 < count && steps < AT_ONCE) continue;
    pool_run(model->pool, encode_part, &start);
    start.count = steps = 0;
  }
  pthread_mutex_unlock(&model->lock);
  free(own);
  free(memories);
  return batch;
}

struct step {
  struct model *model;
  long count;
  const struct row *rows;
  const float *vectors;
  float *out;
  long stride;
};

static void decode_part(void *with, int rank) {
  struct step *step = with;
  decode(step->model, step->model->together, rank, step->count, step->rows, step->out);
}

static void logits_part(void *with, int rank) {
  struct step *step = with;
  write_logits(step->model, step->model->together, rank, step->count, step->vectors, step->out, step->stride);
}

// Reads an id in each row, whose sentence is a number of the batch. past: [row][room] pointers to the steps so far, to
// which this one is added. out: [row][width]. 1 if there was no memory.
EXPORT int saccade_step(struct batch *batch, long count, const int64_t *sentence, long num_past, const char **past, long room,
                 const int32_t *ids, float *out) {
  struct model *model = batch->model;
  long entry = entry_size(model), width = model->sizes.width;
  char *block = aligned_alloc(64, (size_t)(entry * count) + 64);
  char **blocks = realloc(batch->blocks, (size_t)(batch->num_blocks + 1) * sizeof *blocks);
  struct row *rows = calloc((size_t)count + 1, sizeof *rows);
  float *vectors = calloc((size_t)(count * model->stride) + 1, sizeof *vectors);
  if (blocks) batch->blocks = blocks;
  if (!block || !blocks || !rows || !vectors) {
    free(block), free(rows), free(vectors);
    return 1;
  }
  batch->blocks[batch->num_blocks++] = block;
  for (long n = 0; n < count; n++) {
    past[n * room + num_past] = block + n * entry;
    rows[n] = (struct row){&batch->memories[sentence[n]], past + n * room, block + n * entry, num_past, ids[n]};
  }
  struct step step = {model, count, rows, 0, vectors, 0};
  pthread_mutex_lock(&model->lock);
  extend_table(model, num_past + 1);
  pool_run(model->pool, decode_part, &step);
  pthread_mutex_unlock(&model->lock);
  for (long n = 0; n < count; n++) memcpy(out + n * width, vectors + n * model->stride, (size_t)width * sizeof(float));
  free(rows);
  free(vectors);
  return 0;
}

// Multiplies vectors [row][width] with the output matrix. out: [row][room], room at least num_target rounded up to 64.
EXPORT int saccade_logits(struct model *model, long count, const float *vectors, float *out, long room) {
  float *padded = calloc((size_t)(count * model->stride) + 1, sizeof *padded);
  if (!padded) return 1;
  long width = model->sizes.width;
  for (long n = 0; n < count; n++) memcpy(padded + n * model->stride, vectors + n * width, (size_t)width * sizeof(float));
  struct step step = {model, count, 0, padded, out, room};
  pthread_mutex_lock(&model->lock);
  pool_run(model->pool, logits_part, &step);
  pthread_mutex_unlock(&model->lock);
  free(padded);
  return 0;
}
