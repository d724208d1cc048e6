// Searches with the native library outside of Python: `search PACKED KERNELS THREADS WIDTH < lines`. A line is a source
// and the beginning of its output, each as a count and its ids; for it the best output is printed, as its score,
// its ids and log p of each of them.
#include <stdio.h>
#include <stdlib.h>

#include "native.h"

struct options {
  int64_t width, num_best, min_length, max_rounds, length_offset;
  uint64_t banned;
  double length_penalty;
};
struct told {
  int64_t num_found, lost;
  double lost_score;
};
struct output {
  double score;
  int64_t count, kind;
  const int32_t *ids;
  const float *steps;
};
struct search;
struct model *saccade_open(const char *path, const char *kernels, int num_threads, char *reason, long room);
int saccade_probe(const char *name);
struct search *saccade_search(struct model *, const struct options *, long room, long most_rows, int is_shared);
int saccade_add(struct search *, long, const int32_t *, long, const int32_t *, long limit, int is_guarded);
long saccade_run(struct search *, long steps);
void saccade_tell(const struct search *, long number, struct told *);
void saccade_output(const struct search *, long number, long which, struct output *);

enum { MOST = 100, LIMIT = 30 };

static long read_ids(int32_t *ids) {
  long count;
  if (scanf("%ld", &count) != 1 || count > MOST) return -1;
  for (long i = 0; i < count; i++)
    if (scanf("%d", &ids[i]) != 1) return -1;
  return count;
}

int main(int count, char **given) {
  char reason[200] = "";
  if (count != 5 || !saccade_probe(given[2])) return fprintf(stderr, "these kernels don't run here\n"), 2;
  struct model *model = saccade_open(given[1], given[2], atoi(given[3]), reason, sizeof reason);
  if (!model) return fprintf(stderr, "%s\n", reason), 2;
  struct options options = {.width = atoi(given[4]), .num_best = 1, .min_length = 1, .banned = 3, .length_penalty = 1};
  struct search *search = saccade_search(model, &options, MOST, 128, 0);
  int32_t source[MOST], prefix[MOST + 1];
  long number = 0;
  for (long size; (size = read_ids(source)) > 0; number++) {
    long begun = read_ids(prefix);
    if (begun < 0 || saccade_add(search, size, source, begun, prefix, LIMIT, 0)) return 1;
  }
  while (saccade_run(search, 1L << 40)) continue;
  for (long n = 0; n < number; n++) {
    struct told told;
    struct output best = {0}, one;
    saccade_tell(search, n, &told);
    for (long i = 0; i < told.num_found; i++) {
      saccade_output(search, n, i, &one);
      if (!i || one.score > best.score) best = one;
    }
    printf("%a", best.score);
    for (long i = 0; i < best.count; i++) printf(" %d %a", best.ids[i], (double)best.steps[i]);
    puts("");
  }
}
