// Threads that wait for work, and that wait for each other within it.
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "native.h"

enum { SPINS = 1 << 12 };

struct pool {
  int size;
  pthread_t *threads;
  pthread_mutex_t lock;
  pthread_cond_t begun, done;
  long turn;
  int running;
  bool is_closing;
  void (*run)(void *, int);
  void *with;
};

struct start {
  struct pool *pool;
  int rank;
};

static void *work(void *with) {
  struct start start = *(struct start *)with;
  struct pool *pool = start.pool;
  free(with);
  for (long turn = 1;; turn++) {
    pthread_mutex_lock(&pool->lock);
    while (pool->turn < turn && !pool->is_closing) pthread_cond_wait(&pool->begun, &pool->lock);
    bool is_closing = pool->is_closing;
    pthread_mutex_unlock(&pool->lock);
    if (is_closing) return 0;
    pool->run(pool->with, start.rank);
    pthread_mutex_lock(&pool->lock);
    if (!--pool->running) pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->lock);
  }
}

struct pool *pool_new(int size) {
  struct pool *pool = calloc(1, sizeof *pool);
  pool->threads = calloc((size_t)size, sizeof *pool->threads);
  pthread_mutex_init(&pool->lock, 0);
  pthread_cond_init(&pool->begun, 0);
  pthread_cond_init(&pool->done, 0);
  pool->size = 1;
  for (int rank = 1; rank < size; rank++) {
    struct start *start = malloc(sizeof *start);
    *start = (struct start){pool, rank};
    if (pthread_create(&pool->threads[rank], 0, work, start)) {  // the system has no more: go on with these
      free(start);
      break;
    }
    pool->size++;
  }
  return pool;
}

int pool_size(const struct pool *pool) { return pool->size; }

void pool_run(struct pool *pool, void (*run)(void *, int), void *with) {
  if (pool->size > 1) {
    pthread_mutex_lock(&pool->lock);
    pool->run = run, pool->with = with, pool->running = pool->size - 1, pool->turn++;
    pthread_cond_broadcast(&pool->begun);
    pthread_mutex_unlock(&pool->lock);
  }
  run(with, 0);
  if (pool->size > 1) {
    pthread_mutex_lock(&pool->lock);
    while (pool->running) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
  }
}

void pool_free(struct pool *pool) {
  pthread_mutex_lock(&pool->lock);
  pool->is_closing = true;
  pthread_cond_broadcast(&pool->begun);
  pthread_mutex_unlock(&pool->lock);
  for (int rank = 1; rank < pool->size; rank++) pthread_join(pool->threads[rank], 0);
  pthread_cond_destroy(&pool->begun);
  pthread_cond_destroy(&pool->done);
  pthread_mutex_destroy(&pool->lock);
  free(pool->threads);
  free(pool);
}

void crew_wait(struct crew *crew) {
  if (crew->size == 1) return;
  int phase = atomic_load_explicit(&crew->phase, memory_order_acquire);
  if (atomic_fetch_add_explicit(&crew->arrived, 1, memory_order_acq_rel) == crew->size - 1) {
    atomic_store_explicit(&crew->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&crew->phase, phase + 1, memory_order_release);
    return;
  }
  for (long spins = 0; atomic_load_explicit(&crew->phase, memory_order_acquire) == phase; spins++) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (spins >= SPINS) sched_yield();
  }
}
