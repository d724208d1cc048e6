// Greedy and beam search, as saccade.decoding has them, without Python between two steps.
//
// Sentences wait in a queue; a crew takes some, encodes them, and steps with all hypotheses of those it has.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

enum { LONGEST_BLOCK = 16, SHORTEST_LOOP = 32, LONGEST_LOOP = 512, END = 2, NO_ID = -1 };

struct options {
  int64_t width, num_best, min_length, max_rounds, length_offset, most_ended;
  uint64_t banned;  // ids that are never written
  double length_penalty;
};

enum kind { ENDED, CUT };

struct hypothesis {
  double score;
  float total;  // log p of all ids
  long count, room;
  int32_t *ids;
  float *steps;
  const char **past;
  enum kind kind;
};

enum lost { LOST_NOTHING, LOST_IN_LOOP, LOST_AT_LIMIT };

struct sentence {
  long count, num_prefix, limit;
  int32_t *ids, *prefix;
  bool is_guarded, is_wanted, is_done;
  struct memory memory;
  struct hypothesis *live, *next, *found;
  long num_live, num_found, num_ended, num_cut;  // ended: of those that are kept
  long ended_in_all;
  double lost_score;
  enum lost lost;
  char **entries;  // of keys and values
  long num_entries, room_entries;
  long num_allowed;  // 0: all ids are
  int32_t *allowed, *columns;  // ids in order, and where they are in the team's shortlist
};

struct entries {  // that are free
  char **free;
  long count, room;
  char **blocks;
  long num_blocks;
};

struct team {
  struct crew *crew;
  struct sentence **active;
  long num_active, num_steps;
  struct entries entries;
  struct row *rows;
  struct scan *scans;
  float *vectors;
  const int32_t **ids;
  struct memory **memories;
  struct shortlist shortlist;  // of all its sentences
  int32_t *ids_of_shortlist, *place;
  bool is_stale;
  struct sentence **owners;  // of rows
  long num_new, num_rows, room_shortlist, room_logits;
  enum { STOP, ENCODE, STEP } next;
};

struct search {
  struct model *model;
  struct options options;
  long count, room, most_rows;
  struct sentence *sentences;
  atomic_long taken;
  struct team *teams;
  int num_teams;
  long steps;
  bool has_shortlists;
};

static void *grow(void *old, long count, size_t size) {
  void *new = realloc(old, (size_t)count * size);
  if (!new) abort();  // as the system would end us
  return new;
}

static void *room_for(long count, size_t size) {
  void *new = aligned_alloc(64, ((size_t)count * size + 63) / 64 * 64);
  if (!new) abort();
  return new;
}

static char *take_entry(const struct model *model, struct entries *entries, struct sentence *own) {
  enum { AT_ONCE = 32 };
  if (!entries->count) {
    long size = entry_size(model);
    char *block = room_for(AT_ONCE * size, 1);
    entries->blocks = grow(entries->blocks, entries->num_blocks + 1, sizeof *entries->blocks);
    entries->blocks[entries->num_blocks++] = block;
    entries->free = grow(entries->free, entries->num_blocks * AT_ONCE, sizeof *entries->free);
    for (long i = 0; i < AT_ONCE; i++) entries->free[entries->count++] = block + i * size;
  }
  if (own->num_entries == own->room_entries)
    own->entries = grow(own->entries, own->room_entries = 2 * own->room_entries + 64, sizeof *own->entries);
  return own->entries[own->num_entries++] = entries->free[--entries->count];
}

static void make_room(struct hypothesis *h, long count) {
  if (count <= h->room) return;
  h->room = 2 * count + 62;
  h->ids = grow(h->ids, h->room, sizeof *h->ids);
  h->steps = grow(h->steps, h->room, sizeof *h->steps);
  h->past = grow(h->past, h->room, sizeof *h->past);
}

static void copy(struct hypothesis *into, const struct hypothesis *from) {
  make_room(into, from->count + 2);
  into->count = from->count, into->total = from->total;
  memcpy(into->ids, from->ids, (size_t)from->count * sizeof *from->ids);
  memcpy(into->steps, from->steps, (size_t)from->count * sizeof *from->steps);
  memcpy(into->past, from->past, (size_t)(from->count + 1) * sizeof *from->past);  // of the step being taken, too
}

static void forget(struct hypothesis *h) { free(h->ids), free(h->steps), free(h->past); }

static double rank(const struct options *options, double total, long length) {
  double counted = (double)(options->length_offset + length > 1 ? options->length_offset + length : 1);
  return total / pow(counted / (double)(options->length_offset + 1), options->length_penalty);
}

// Keeps a copy of a hypothesis; of those that ended only the best.
static void keep(const struct options *options, struct sentence *own, const struct hypothesis *h, enum kind kind) {
  double total = 0;
  for (long i = 0; i < h->count; i++) total += h->steps[i];
  double score = rank(options, total, h->count);
  struct hypothesis *place = 0;
  own->ended_in_all += kind == ENDED;
  if (kind == ENDED && own->num_ended >= options->num_best) {
    for (long i = 0; i < own->num_found; i++)
      if (own->found[i].kind == ENDED && (!place || own->found[i].score < place->score)) place = &own->found[i];
    if (score <= place->score) return;
  } else {
    own->found = grow(own->found, own->num_found + 1, sizeof *own->found);
    place = &own->found[own->num_found++];
    memset(place, 0, sizeof *place);
    if (kind == ENDED) own->num_ended++;
    else own->num_cut++;
  }
  copy(place, h);
  place->score = score, place->kind = kind;
}

static void lose(const struct options *options, struct sentence *own, double total, long length, enum lost reason) {
  double score = rank(options, total, length);
  if (score > own->lost_score) own->lost_score = score, own->lost = reason;
}

// Tells whether ids (<s> is before them) end in a block that comes again and again.
static bool is_loop(const struct options *options, const struct sentence *own, const struct hypothesis *h) {
  if (!options->max_rounds || h->count % LONGEST_BLOCK || h->count < SHORTEST_LOOP) return false;
  if (h->count + 1 <= LONGEST_LOOP && !own->is_guarded) return false;
  for (long block = 1; block <= LONGEST_BLOCK; block++) {
    long size = options->max_rounds * block > SHORTEST_LOOP ? options->max_rounds * block : SHORTEST_LOOP;
    if (h->count < size) continue;  // <s> is in no loop
    const int32_t *tail = h->ids + h->count - size;
    if (!memcmp(tail, tail + block, (size_t)(size - block) * sizeof *tail)) return true;
  }
  return false;
}

static void activate(const struct search *search, struct sentence *own) {
  long width = search->options.width;
  own->live = calloc((size_t)width, sizeof *own->live);
  own->next = calloc((size_t)width, sizeof *own->next);
  make_room(&own->live[0], 1);
  own->num_live = 1;
}

static void finish(struct team *team, struct sentence *own, long width) {
  team->entries.free = grow(team->entries.free, team->entries.num_blocks * 32 + 1, sizeof *team->entries.free);
  for (long i = 0; i < own->num_entries; i++) team->entries.free[team->entries.count++] = own->entries[i];
  for (long i = 0; i < width; i++) forget(&own->live[i]), forget(&own->next[i]);
  free(own->live), free(own->next), free(own->entries), free(own->memory.pairs);
  own->live = own->next = 0, own->entries = 0, own->memory.pairs = 0;
  own->num_live = own->num_entries = own->room_entries = 0;
  own->is_done = true;
}

static int32_t forced_id(const struct sentence *own, long written) {
  return written < own->num_prefix ? own->prefix[written] : NO_ID;
}

struct candidate {
  float total, step;
  int32_t id;
  long parent;
};

static void offer(struct candidate *best, long room, struct candidate one) {
  if (one.id < 0 || !(one.total > best[room - 1].total)) return;
  long at = room - 1;
  for (; at && one.total > best[at - 1].total; at--) best[at] = best[at - 1];
  best[at] = one;
}

// The best extensions of a sentence's hypotheses, best first.
static void find_candidates(const struct sentence *own, const struct scan *scans, struct candidate *best, long room) {
  for (long i = 0; i < room; i++) best[i] = (struct candidate){-INFINITY, 0, NO_ID, 0};
  for (long n = 0; n < own->num_live; n++) {
    const struct hypothesis *h = &own->live[n];
    const struct scan *scan = &scans[n];
    int32_t forced = forced_id(own, h->count);
    float normal = scan->max, log_sum = logf(scan->sum);
    if (forced != NO_ID) {
      float step = scan->watched_logit - normal - log_sum;
      offer(best, room, (struct candidate){h->total + step, step, forced, n});
      continue;
    }
    for (int i = 0; i < scan->num_best; i++) {
      float step = scan->best[i] - normal - log_sum;
      offer(best, room, (struct candidate){h->total + step, step, scan->id[i], n});
    }
    if (scan->id[0] < 0) {  // everything else is banned: rather short than never
      float step = scan->watched_logit - normal - log_sum;
      offer(best, room, (struct candidate){h->total + step, step, END, n});
    }
  }
}

static void append(struct hypothesis *h, const struct candidate *one) {
  h->ids[h->count] = one->id, h->steps[h->count++] = one->step, h->total = one->total;
}

// Extends the one hypothesis of a greedy search: true if it is done.
static bool extend_one(const struct options *options, struct sentence *own, const struct candidate *one) {
  struct hypothesis *h = &own->live[0];
  make_room(h, h->count + 2);
  append(h, one);
  bool is_end = one->id == END;
  if (!is_end && h->count < own->limit && own->is_wanted && !is_loop(options, own, h)) return false;
  keep(options, own, h, is_end ? ENDED : CUT);
  return true;
}

static bool is_done(const struct options *options, const struct sentence *own, float best_live, long length) {
  if (length >= own->limit || best_live == -INFINITY || own->num_cut >= options->width || !own->is_wanted) return true;
  if (options->most_ended && own->ended_in_all >= options->most_ended) return true;
  if (own->num_ended < options->num_best) return false;
  double worst = INFINITY;
  for (long i = 0; i < own->num_found; i++)
    if (own->found[i].kind == ENDED && own->found[i].score < worst) worst = own->found[i].score;
  return worst >= rank(options, best_live, own->limit);
}

// Extends all hypotheses of a beam: true if it is done.
static bool extend_beam(const struct options *options, struct sentence *own, const struct candidate *best, long room) {
  long kept = 0, length = own->live[0].count + 1;
  for (long i = 0; i < room && best[i].id >= 0; i++) {
    struct hypothesis *parent = &own->live[best[i].parent];
    if (best[i].id == END) {
      if (i >= options->width) continue;
      make_room(parent, parent->count + 2);
      float total = parent->total;
      append(parent, &best[i]);
      keep(options, own, parent, ENDED);
      parent->count--, parent->total = total;
    } else if (kept < options->width) {
      copy(&own->next[kept], parent);
      append(&own->next[kept++], &best[i]);
    }
  }
  struct hypothesis *before = own->live;
  own->live = own->next, own->next = before, own->num_live = 0;
  float best_live = -INFINITY;
  for (long n = 0; n < kept; n++) {
    if (is_loop(options, own, &own->live[n])) {
      lose(options, own, own->live[n].total, length, LOST_IN_LOOP);
      keep(options, own, &own->live[n], CUT);
      continue;
    }
    struct hypothesis moved = own->live[own->num_live];
    own->live[own->num_live++] = own->live[n], own->live[n] = moved;
    float total = own->live[own->num_live - 1].total;
    best_live = total > best_live ? total : best_live;
  }
  bool done = is_done(options, own, best_live, length);
  if (length >= own->limit && best_live > -INFINITY) lose(options, own, best_live, length, LOST_AT_LIMIT);
  for (long n = 0; done && n < own->num_live && own->num_ended < options->num_best; n++)
    keep(options, own, &own->live[n], CUT);
  return done;
}

// Joins the ids that sentences may write to one matrix.
static void join_shortlists(const struct search *search, struct team *team) {
  const struct model *model = search->model;
  long count = 0, most = model->sizes.num_target, in = model->sizes.width;
  if (!team->place) team->place = room_for(most, sizeof *team->place);
  if (!team->ids_of_shortlist) team->ids_of_shortlist = room_for(most, sizeof *team->ids_of_shortlist);
  memset(team->place, 0, (size_t)most * sizeof *team->place);
  for (long n = 0; n < team->num_active; n++)
    for (long i = 0; i < team->active[n]->num_allowed; i++) team->place[team->active[n]->allowed[i]] = 1;
  for (long id = 0; id < most; id++)
    if (team->place[id]) team->ids_of_shortlist[count] = (int32_t)id, team->place[id] = (int32_t)count++;
  for (long n = 0; n < team->num_active; n++)
    for (long i = 0; i < team->active[n]->num_allowed; i++)
      team->active[n]->columns[i] = team->place[team->active[n]->allowed[i]];
  struct matrix *w = &team->shortlist.matrix;
  w->num_in = in, w->num_out = count, w->num_panels = (count + PANEL - 1) / PANEL;
  if (w->num_panels * PANEL > team->room_shortlist) {
    long room = team->room_shortlist = w->num_panels * PANEL * 5 / 4 / PANEL * PANEL;
    bool is_bytes = model->output.scale;
    free((void *)w->weight), free((void *)w->bias), free((void *)w->scale);
    w->weight = room_for(room, is_bytes ? (size_t)(in + 3) / 4 * 4 : (size_t)in * sizeof(float));
    w->bias = room_for(room, sizeof(float));
    w->scale = is_bytes ? room_for(room, sizeof(float)) : 0;
  }
  long logits = w->num_panels * PANEL * search->most_rows;
  if (logits > team->room_logits) {
    free(team->shortlist.logits);
    team->shortlist.logits = room_for(team->room_logits = logits, sizeof(float));
  }
  copy_outputs(model, team->ids_of_shortlist, w);
  team->is_stale = false;
}

// Where an id is among those that a sentence may write; one that is not there was refused before.
static int32_t find_allowed(const struct sentence *own, int32_t id) {
  long low = 0, high = own->num_allowed - 1;
  while (low < high) {
    long middle = (low + high) / 2;
    if (own->allowed[middle] < id) low = middle + 1;
    else high = middle;
  }
  return (int32_t)low;
}

// Chooses what the crew does next: takes sentences that wait, or steps with those it has.
static void plan(struct search *search, struct team *team) {
  enum { AT_ONCE = 512 };  // steps of sources that are encoded together
  long width = search->options.width, room = search->most_rows / width > 1 ? search->most_rows / width : 1;
  team->num_new = 0;
  if (2 * team->num_active <= room) {
    for (long steps = 0; team->num_active + team->num_new < room && steps < AT_ONCE;) {
      long at = atomic_fetch_add(&search->taken, 1);
      if (at >= search->count) break;
      struct sentence *own = &search->sentences[at];
      if (!own->is_wanted) {
        own->is_done = true;
        continue;
      }
      own->memory.count = own->count;
      own->memory.pairs = room_for(memory_size(search->model, own->count), 1);
      team->active[team->num_active + team->num_new] = own;
      team->ids[team->num_new] = own->ids, team->memories[team->num_new++] = &own->memory;
      steps += own->count;
    }
  }
  team->next = team->num_new ? ENCODE : team->num_active && team->num_steps < search->steps ? STEP : STOP;
  if (team->next != STEP) return;
  if (search->has_shortlists && team->is_stale) join_shortlists(search, team);
  team->num_rows = 0;
  for (long n = 0; n < team->num_active; n++) {
    struct sentence *own = team->active[n];
    for (long i = 0; i < own->num_live; i++) {
      struct hypothesis *h = &own->live[i];
      char *entry = take_entry(search->model, &team->entries, own);
      make_room(h, h->count + 2);
      h->past[h->count] = entry;
      int32_t read = h->count ? h->ids[h->count - 1] : 1, forced = forced_id(own, h->count);
      team->rows[team->num_rows] = (struct row){&own->memory, h->past, entry, h->count, read};
      struct scan *scan = &team->scans[team->num_rows++];
      scan->banned = search->options.banned | (uint64_t)(h->count < search->options.min_length) << END;
      scan->watched = forced == NO_ID ? END : forced;
      if (search->has_shortlists) {
        scan->watched = find_allowed(own, scan->watched);
        team->shortlist.columns[team->num_rows - 1] = own->columns;
        team->shortlist.counts[team->num_rows - 1] = own->num_allowed;
        team->owners[team->num_rows - 1] = own;
      }
      scan->num_best = (int32_t)(width == 1 ? 1 : 2 * width);
    }
  }
}

static void settle(struct search *search, struct team *team) {
  const struct options *options = &search->options;
  struct candidate best[MOST_BEST];
  long row = 0, kept = 0, room = options->width == 1 ? 1 : 2 * options->width;
  for (long n = 0; search->has_shortlists && n < team->num_rows; n++)
    for (int i = 0; i < team->scans[n].num_best; i++)
      if (team->scans[n].id[i] >= 0) team->scans[n].id[i] = team->owners[n]->allowed[team->scans[n].id[i]];
  for (long n = 0; n < team->num_active; n++) {
    struct sentence *own = team->active[n];
    long live = own->num_live;
    find_candidates(own, team->scans + row, best, room);
    row += live;
    bool done = options->width == 1 && best[0].id >= 0 ? extend_one(options, own, best)
                                                       : extend_beam(options, own, best, room);
    if (done) finish(team, own, options->width);
    else team->active[kept++] = own;
  }
  team->num_active = kept;
  team->num_steps++;
}

static void run_team(struct search *search, struct team *team, int rank) {
  for (;;) {
    if (rank == 0) plan(search, team);
    crew_wait(team->crew);
    if (team->next == STOP) break;
    if (team->next == ENCODE) {
      encode(search->model, team->crew, rank, team->num_new, team->ids, team->memories);
      if (rank == 0)
        for (long n = 0; n < team->num_new; n++) activate(search, team->active[team->num_active++]);
      if (rank == 0) team->is_stale = true;
      continue;
    }
    decode(search->model, team->crew, rank, team->num_rows, team->rows, team->vectors);
    if (search->has_shortlists)
      scan_shortlist(search->model, team->crew, rank, team->num_rows, team->vectors, &team->shortlist, team->scans);
    else
      scan_logits(search->model, team->crew, rank, team->num_rows, team->vectors, team->scans);
    if (rank == 0) settle(search, team);
  }
  crew_wait(team->crew);
}

static void run_part(void *with, int rank) {
  struct search *search = with;
  if (search->num_teams == 1) run_team(search, &search->teams[0], rank);
  else run_team(search, &search->teams[rank], 0);
}

// `is_shared`: all threads share each step, which is quicker for few sentences; else each has sentences of its own.
EXPORT struct search *saccade_search(struct model *model, const struct options *options, long room, long most_rows,
                              int is_shared) {
  if (options->width < 1 || options->width > MOST_BEST / 2) return 0;
  struct search *search = calloc(1, sizeof *search);
  search->model = model, search->options = *options, search->room = room;
  search->most_rows = most_rows > options->width ? most_rows : options->width;
  search->sentences = calloc((size_t)room + 1, sizeof *search->sentences);
  search->num_teams = is_shared ? 1 : pool_size(model->pool);
  search->teams = calloc((size_t)search->num_teams, sizeof *search->teams);
  for (int i = 0; i < search->num_teams; i++) {
    struct team *team = &search->teams[i];
    long rows = search->most_rows;
    team->crew = is_shared ? model->together : &model->alone[i];
    team->active = calloc((size_t)rows, sizeof *team->active);
    team->ids = calloc((size_t)rows, sizeof *team->ids);
    team->memories = calloc((size_t)rows, sizeof *team->memories);
    team->rows = calloc((size_t)rows, sizeof *team->rows);
    team->scans = calloc((size_t)rows, sizeof *team->scans);
    team->shortlist.columns = calloc((size_t)rows, sizeof *team->shortlist.columns);
    team->shortlist.counts = calloc((size_t)rows, sizeof *team->shortlist.counts);
    team->owners = calloc((size_t)rows, sizeof *team->owners);
    team->vectors = room_for(rows * model->stride, sizeof(float));
    memset(team->vectors, 0, (size_t)(rows * model->stride) * sizeof(float));
  }
  return search;
}

// Adds a source, as many as `room` said.
EXPORT int saccade_add(struct search *search, long count, const int32_t *ids, long num_prefix, const int32_t *prefix, long limit,
                int is_guarded) {
  if (search->count == search->room || count < 1) return 1;
  struct sentence *own = &search->sentences[search->count++];
  own->count = count, own->num_prefix = num_prefix, own->limit = limit, own->lost_score = -INFINITY;
  own->is_guarded = is_guarded, own->is_wanted = true;
  own->ids = grow(0, count, sizeof *ids);
  memcpy(own->ids, ids, (size_t)count * sizeof *ids);
  own->prefix = grow(0, num_prefix + 1, sizeof *ids);
  memcpy(own->prefix, prefix, (size_t)num_prefix * sizeof *ids);
  return 0;
}

// Says which ids the source that was added last may write: in order, with the first four; all sources or none.
EXPORT int saccade_allow(struct search *search, long count, const int32_t *ids) {
  if (!search->count || count < 4 || count > search->model->sizes.num_target) return 1;
  for (long i = 0; i < count; i++)
    if (ids[i] >= search->model->sizes.num_target || (i < 4 ? ids[i] != i : ids[i] <= ids[i - 1])) return 1;
  struct sentence *own = &search->sentences[search->count - 1];
  own->num_allowed = count, search->has_shortlists = true;
  own->allowed = grow(0, count, sizeof *ids), own->columns = grow(0, count, sizeof *ids);
  memcpy(own->allowed, ids, (size_t)count * sizeof *ids);
  return 0;
}

EXPORT void saccade_drop(struct search *search, long number) { search->sentences[number].is_wanted = false; }

// Goes on for at most so many steps, with whatever sentences there are; returns how many are not done.
EXPORT long saccade_run(struct search *search, long steps) {
  struct model *model = search->model;
  long longest = 0, left = 0;
  for (long n = 0; n < search->count; n++) {
    longest = search->sentences[n].count > longest ? search->sentences[n].count : longest;
    longest = search->sentences[n].limit > longest ? search->sentences[n].limit : longest;
  }
  pthread_mutex_lock(&model->lock);
  extend_table(model, longest + 1);
  search->steps = steps;
  for (int i = 0; i < search->num_teams; i++) search->teams[i].num_steps = 0;
  pool_run(model->pool, run_part, search);
  pthread_mutex_unlock(&model->lock);
  for (long n = 0; n < search->count; n++) left += !search->sentences[n].is_done;
  return left;
}

struct told {
  int64_t num_found, lost;
  double lost_score;
};

EXPORT void saccade_tell(const struct search *search, long number, struct told *told) {
  const struct sentence *own = &search->sentences[number];
  *told = (struct told){own->num_found, own->lost, own->lost_score};
}

struct output {
  double score;
  int64_t count, kind;
  const int32_t *ids;
  const float *steps;
};

EXPORT void saccade_output(const struct search *search, long number, long which, struct output *output) {
  const struct hypothesis *h = &search->sentences[number].found[which];
  *output = (struct output){h->score, h->count, h->kind, h->ids, h->steps};
}

EXPORT void saccade_forget(struct search *search) {
  for (int i = 0; i < search->num_teams; i++) {
    struct team *team = &search->teams[i];
    for (long n = 0; n < team->num_active; n++) finish(team, team->active[n], search->options.width);
    for (long n = 0; n < team->entries.num_blocks; n++) free(team->entries.blocks[n]);
    free(team->entries.blocks), free(team->entries.free);
    free(team->active), free(team->ids), free(team->memories), free(team->rows), free(team->scans);
    free(team->vectors), free(team->place), free(team->ids_of_shortlist), free(team->owners);
    free(team->shortlist.columns), free(team->shortlist.counts), free(team->shortlist.logits);
    free((void *)team->shortlist.matrix.weight), free((void *)team->shortlist.matrix.bias);
    free((void *)team->shortlist.matrix.scale);
  }
  for (long n = 0; n < search->count; n++) {
    struct sentence *own = &search->sentences[n];
    for (long i = 0; i < own->num_found; i++) forget(&own->found[i]);
    free(own->found), free(own->ids), free(own->prefix), free(own->memory.pairs);
    free(own->allowed), free(own->columns);
  }
  free(search->sentences), free(search->teams), free(search);
}
