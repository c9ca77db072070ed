/* The cache of worker threads. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/crew.h"
#include "scarce_threads.h"
#include "test.h"

static int tasks_at_start; /* the main thread, and those of a sanitizer */

/* Threads beside those. */
static int task_count(void) {
  DIR *tasks = opendir("/proc/self/task");
  int count = -2 - tasks_at_start; /* "." and ".." */
  while (readdir(tasks)) {
    count++;
  }
  closedir(tasks);
  return count;
}

static void pause_ms(int ms) {
  gpufi_sleep_ns(ms * INT64_C(1000000));
}

/* What threads that all have to be there at once have done. */
typedef struct meeting {
  pthread_barrier_t barrier;
  atomic_int count;
  atomic_int wrong_masks; /* threads in which a signal is not blocked, or a fault is */
} meeting;

static void meet(void *arg) {
  meeting *m = arg;
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  for (int number = 1; number < 32; number++) {
    const bool is_fault = number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
                          number == SIGILL || number == SIGTRAP;
    if (number != SIGKILL && number != SIGSTOP && sigismember(&blocked, number) == is_fault) {
      m->wrong_masks++;
      break;
    }
  }
  m->count++;
  pthread_barrier_wait(&m->barrier);
}

/* Start `count` that meet each other and this thread; false if they are not all started. */
static bool hold_meeting(meeting *m, int32_t count) {
  gpufi_workers workers = {0};
  pthread_barrier_init(&m->barrier, NULL, (unsigned)count + 1);
  m->count = m->wrong_masks = 0;
  const bool all = gpufi_workers_start(&workers, count, meet, m) == count;
  if (all) {
    pthread_barrier_wait(&m->barrier);
    gpufi_workers_wait(&workers);
  }
  pthread_barrier_destroy(&m->barrier);
  return all && m->count == count;
}

static void all_run_at_once_and_with_signals_blocked_but_faults(void) {
  meeting m;
  for (int32_t count = 1; count <= 33; count += 8) {
    CHECK(hold_meeting(&m, count));
    CHECK(m.wrong_masks == 0);
  }
}

static void parked_threads_are_used_again(void) {
  meeting m;
  CHECK(hold_meeting(&m, 12));
  const int before = task_count();
  for (int i = 0; i < 100; i++) {
    CHECK(hold_meeting(&m, 12));
  }
  CHECK(task_count() <= before + 12); /* some may not have parked when the next were started */
}

static void parked_threads_are_few_and_end_soon(void) {
  meeting m;
  CHECK(hold_meeting(&m, 150));
  for (int i = 0; i < 100 && task_count() > 64; i++) {
    pause_ms(20);
  }
  CHECK(task_count() <= 64);
  for (int i = 0; i < 200 && task_count() > 0; i++) {
    pause_ms(50);
  }
  CHECK(task_count() == 0);
  CHECK(hold_meeting(&m, 3)); /* and there are new ones then */
}

/* Workers that each wait for workers of their own, three levels deep. */
typedef struct nest {
  int depth;
  atomic_int *leaves;
} nest;

static void descend(void *arg) {
  const nest *here = arg;
  nest below = {here->depth - 1, here->leaves};
  gpufi_workers workers = {0};
  if (here->depth == 0) {
    ++*here->leaves;
    return;
  }
  const int32_t started = gpufi_workers_start(&workers, 4, descend, &below);
  for (int32_t i = started; i < 4; i++) {
    descend(&below);
  }
  gpufi_workers_wait(&workers);
}

static void workers_that_wait_for_workers_do_not_deadlock(void) {
  for (int i = 0; i < 20; i++) {
    atomic_int leaves = 0;
    nest top = {3, &leaves};
    descend(&top);
    CHECK(leaves == 64);
  }
}

static void *descend_from_another_thread(void *leaves) {
  for (int i = 0; i < 20; i++) {
    nest top = {2, leaves};
    descend(&top);
  }
  return NULL;
}

static void calls_from_many_threads_get_workers_of_their_own(void) {
  atomic_int leaves = 0;
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) {
    CHECK(pthread_create(&threads[i], NULL, descend_from_another_thread, &leaves) == 0);
  }
  for (int i = 0; i < 8; i++) {
    pthread_join(threads[i], NULL);
  }
  CHECK(leaves == 8 * 20 * 16);
}

static void count_call(void *count) {
  ++*(atomic_int *)count;
}

static void the_caller_learns_how_many_run(void) {
  atomic_int calls = 0;
  gpufi_workers workers = {0};
  meeting m;
  CHECK(gpufi_workers_start(&workers, 0, count_call, &calls) == 0);
  for (int i = 0; i < 200 && task_count() > 0; i++) {
    pause_ms(50); /* until nothing is parked */
  }
  CHECK(task_count() == 0);
  threads_left = 0;
  const int32_t none = gpufi_workers_start(&workers, 5, count_call, &calls);
  gpufi_workers_wait(&workers);
  const int calls_of_none = calls;
  threads_left = 2;
  const int32_t two = gpufi_workers_start(&workers, 5, count_call, &calls);
  gpufi_workers_wait(&workers);
  threads_left = INT_MAX;
  CHECK(none == 0 && calls_of_none == 0);
  CHECK(two == 2 && calls == 2);
  CHECK(hold_meeting(&m, 4));
}

static void a_forked_child_starts_its_own(void) {
  meeting m;
  int outcome;
  CHECK(hold_meeting(&m, 8)); /* now the parent has some parked */
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(hold_meeting(&m, 8) ? 0 : 1);
  }
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  CHECK(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0);
  CHECK(hold_meeting(&m, 8));
}

/* --- Crews --------------------------------------------------------------------- */

/* Numbers to count, which threads share. */
typedef struct counting {
  atomic_int next, done, running;
  int count, thread_max;
  atomic_bool is_crowded; /* more than thread_max threads did it at once */
} counting;

static void count_all(void *arg) {
  counting *const c = arg;
  if (++c->running > c->thread_max) {
    c->is_crowded = true;
  }
  while (c->next++ < c->count) {
    c->done++;
  }
  c->running--;
}

static gpufi_job job_of(counting *c) {
  return (gpufi_job){.run = count_all, .arg = c, .thread_max = c->thread_max};
}

/* While one job is done, the next is posted. */
static void have_jobs_done(int32_t thread_count) {
  gpufi_crew crew;
  counting work[2] = {{.count = 0}, {.count = 0}};
  gpufi_job jobs[2] = {{.run = NULL}, {.run = NULL}};
  gpufi_crew_init(&crew, thread_count);
  for (int i = 0; i < 3000; i++) {
    counting *const c = &work[i % 2];
    gpufi_crew_finish(&crew, &jobs[i % 2]);
    CHECK(c->done == c->count && c->running == 0 && !c->is_crowded);
    *c = (counting){.count = i * 7 % 40, .thread_max = 1 + i % 5};
    jobs[i % 2] = job_of(c);
    gpufi_crew_post(&crew, &jobs[i % 2]);
  }
  gpufi_crew_finish(&crew, &jobs[1]); /* before the one that was posted before it */
  gpufi_crew_finish(&crew, &jobs[0]);
  CHECK(work[0].done == work[0].count && work[1].done == work[1].count);
  gpufi_crew_fini(&crew);
}

static void a_crew_does_all_of_each_job(void) {
  have_jobs_done(4);
  have_jobs_done(1);
}

static void without_threads_a_job_is_done_by_who_finishes_it(void) {
  have_jobs_done(0);
}

/* The thread that has posted it is not needed. */
static void a_crew_begins_at_once(void) {
  const int64_t deadline_ns = gpufi_clock_ns() + 20 * GPUFI_NS_PER_S;
  counting work = {.count = 1000, .thread_max = 2};
  gpufi_job job = job_of(&work);
  gpufi_crew crew;
  gpufi_crew_init(&crew, 2);
  gpufi_crew_post(&crew, &job);
  while (work.done < work.count && gpufi_clock_ns() < deadline_ns) {
    pause_ms(1);
  }
  CHECK(work.done == work.count);
  gpufi_crew_finish(&crew, &job);
  gpufi_crew_fini(&crew);
}

static void *do_nothing(void *arg) {
  return arg;
}

int main(void) {
  pthread_t first; /* ThreadSanitizer starts a thread of its own with it */
  pthread_create(&first, NULL, do_nothing, NULL);
  pthread_join(first, NULL);
  tasks_at_start = task_count();
  TEST(all_run_at_once_and_with_signals_blocked_but_faults);
  TEST(parked_threads_are_used_again);
  TEST(parked_threads_are_few_and_end_soon);
  TEST(workers_that_wait_for_workers_do_not_deadlock);
  TEST(calls_from_many_threads_get_workers_of_their_own);
  TEST(the_caller_learns_how_many_run);
  TEST(a_forked_child_starts_its_own);
  TEST(a_crew_does_all_of_each_job);
  TEST(without_threads_a_job_is_done_by_who_finishes_it);
  TEST(a_crew_begins_at_once);
  return test_finish();
}
