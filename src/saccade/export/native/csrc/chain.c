// Linear chains of tags: the best path, and the sum over all paths. See saccade.layers.crf, whose equations these are.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

struct chain {
  long num_tags;
  const float *pair;  // [tag + 1][tag + 1]: from, to; the last row and column stand for start and end
};

static float pair_of(const struct chain *chain, long from, long to) { return chain->pair[from * (chain->num_tags + 1) + to]; }

// The best tags of a text of some steps, and their score, with the sums of floats in torch's order (Viterbi 1967).
static float find_best(const struct chain *chain, long steps, const float *emission, int32_t *came, float *best,
                       int64_t *tag) {
  long count = chain->num_tags, last = 0;
  float *now = best, *before = best + count;
  for (long y = 0; y < count; y++) now[y] = pair_of(chain, count, y) + emission[y];
  for (long t = 1; t < steps; t++) {
    float *swap = before;
    before = now, now = swap;
    for (long y = 0; y < count; y++) {
      long from = 0;
      for (long x = 1; x < count; x++)
        if (before[x] + pair_of(chain, x, y) > before[from] + pair_of(chain, from, y)) from = x;
      now[y] = before[from] + pair_of(chain, from, y) + emission[t * count + y];
      came[t * count + y] = (int32_t)from;
    }
  }
  for (long y = 0; y < count; y++) now[y] += pair_of(chain, y, count);
  for (long y = 1; y < count; y++)
    if (now[y] > now[last]) last = y;
  float score = now[last];
  tag[steps - 1] = last;
  for (long t = steps - 1; t > 0; t--) tag[t - 1] = last = came[t * count + last];
  return score;
}

// log Z: alpha_t[y] = emission[t, y] + log sum_x exp(alpha_t-1[x] + pair[x, y]).
static double sum_paths(const struct chain *chain, long steps, const float *emission, double least, double *alpha,
                        const double *factor) {
  long count = chain->num_tags;
  double *share = alpha + count, most, sum;
  for (long y = 0; y < count; y++) alpha[y] = (double)pair_of(chain, count, y) + (double)emission[y];
  for (long t = 1; t < steps; t++) {
    most = alpha[0];
    for (long x = 1; x < count; x++) most = alpha[x] > most ? alpha[x] : most;
    for (long x = 0; x < count; x++) share[x] = exp(alpha[x] - most);
    for (long y = 0; y < count; y++) {
      sum = 0;
      for (long x = 0; x < count; x++) sum += share[x] * factor[x * count + y];
      alpha[y] = log(sum > least ? sum : least) + most + (double)emission[t * count + y];
    }
  }
  for (long y = 0; y < count; y++) alpha[y] += (double)pair_of(chain, y, count);
  most = alpha[0], sum = 0;
  for (long y = 1; y < count; y++) most = alpha[y] > most ? alpha[y] : most;
  for (long y = 0; y < count; y++) sum += exp(alpha[y] - most);
  return most + log(sum);
}

// Of each text [step][tag], of `room` steps: the best tags (0 behind its length) and their score, and log Z. `least`
// is the smallest share that is told from 0. 1 if there was no memory.
EXPORT int saccade_chain(long count, long room, long num_tags, const float *emission, const int64_t *lengths,
                         const float *pair, double least, int64_t *tag, float *score, float *log_sum) {
  struct chain chain = {num_tags, pair};
  int32_t *came = malloc((size_t)(room * num_tags + 1) * sizeof *came);
  float *best = malloc((size_t)(2 * num_tags + 1) * sizeof *best);
  double *alpha = malloc((size_t)(2 * num_tags + 1) * sizeof *alpha);
  double *factor = malloc((size_t)(num_tags * num_tags + 1) * sizeof *factor);
  bool has_room = came && best && alpha && factor;
  for (long x = 0; has_room && x < num_tags; x++)
    for (long y = 0; y < num_tags; y++) factor[x * num_tags + y] = exp((double)pair_of(&chain, x, y));
  for (long n = 0; has_room && n < count; n++) {
    const float *own = emission + n * room * num_tags;
    memset(tag + n * room, 0, (size_t)room * sizeof *tag);
    score[n] = find_best(&chain, lengths[n], own, came, best, tag + n * room);
    log_sum[n] = (float)sum_paths(&chain, lengths[n], own, least, alpha, factor);
  }
  free(came), free(best), free(alpha), free(factor);
  return !has_room;
}
