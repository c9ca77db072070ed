#include "comm/queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void gpufi_queues_init(gpufi_queues *queues, int32_t waiting_max) {
  *queues = (gpufi_queues){.waiting_max = waiting_max};
  pthread_mutex_init(&queues->lock, NULL);
}

void gpufi_queues_fini(gpufi_queues *queues) {
  for (int kind = 0; kind < QUEUE_COUNT; kind++) {
    gpufi_requests_free(queues->lists[kind].head);
  }
  pthread_mutex_destroy(&queues->lock);
}

void gpufi_requests_free(gpufi_request *list) {
  for (gpufi_request *next; list; list = next) {
    next = list->next;
    free(list);
  }
}

/* --- Under the lock ------------------------------------------------------------ */

/* The round after the current one, and after those in which the owner has requests already. Never
 * the current one: an owner that asks again at each reply would hold up the rounds that follow. */
static uint64_t next_round(const gpufi_queues *queues, gpufi_queue_kind kind, uint64_t owner) {
  uint64_t last = queues->lists[kind].round;
  for (const gpufi_request *r = queues->lists[kind].head; r; r = r->next) {
    last = r->owner == owner && r->round > last ? r->round : last;
  }
  return last + 1;
}

static void insert(gpufi_queues *queues, gpufi_queue_kind kind, gpufi_request *request) {
  gpufi_request **link = &queues->lists[kind].head;
  request->round = next_round(queues, kind, request->owner);
  while (*link && (*link)->round <= request->round) {
    link = &(*link)->next;
  }
  request->next = *link;
  *link = request;
  queues->waiting_count++;
  if (kind == QUEUE_STEP) {
    atomic_fetch_add(&queues->step_count, 1);
  }
}

static gpufi_request *unlink_request(gpufi_queues *queues, gpufi_queue_kind kind,
                                     gpufi_request **link) {
  gpufi_request *request = *link;
  *link = request->next;
  request->next = NULL;
  queues->waiting_count--;
  if (kind == QUEUE_STEP) {
    atomic_fetch_sub(&queues->step_count, 1);
  }
  return request;
}

static bool matches(const gpufi_request *request, const gpufi_queue_filter *filter) {
  return (filter->client == 0 || request->client == filter->client) &&
         (!filter->id || gpufi_token_equal(&request->id, filter->id)) &&
         (!filter->supersede || strcmp(request->supersede, filter->supersede) == 0) &&
         (filter->serial == 0 || request->serial == filter->serial);
}

static gpufi_request *take_matching(gpufi_queues *queues, const gpufi_queue_filter *filter) {
  gpufi_request *taken = NULL, **end = &taken;
  for (int kind = 0; kind < QUEUE_COUNT; kind++) {
    for (gpufi_request **link = &queues->lists[kind].head; *link;) {
      if (matches(*link, filter)) {
        *end = unlink_request(queues, (gpufi_queue_kind)kind, link);
        end = &(*end)->next;
      } else {
        link = &(*link)->next;
      }
    }
  }
  return taken;
}

static int32_t count_of_client(const gpufi_queues *queues, uint64_t client) {
  int32_t count = 0;
  for (int kind = 0; kind < QUEUE_COUNT; kind++) {
    for (const gpufi_request *r = queues->lists[kind].head; r; r = r->next) {
      count += r->client == client;
    }
  }
  return count;
}

/* --- Calls --------------------------------------------------------------------- */

gpufi_code gpufi_queues_put(gpufi_queues *queues, gpufi_queue_kind kind, gpufi_request *request,
                            gpufi_request **superseded, gpuf_error *err) {
  const gpufi_queue_filter older = {.client = request->client, .supersede = request->supersede};
  gpufi_request *copy = malloc(sizeof(*copy));
  gpufi_code code = CODE_OK;
  pthread_mutex_lock(&queues->lock);
  *superseded = request->supersede[0] != '\0' ? take_matching(queues, &older) : NULL;
  const int32_t waiting_count = count_of_client(queues, request->client);
  if (!copy) {
    code = REFUSE(err, CODE_BUSY, "no memory for a request: ask again later");
  } else if (waiting_count >= queues->waiting_max) {
    code = REFUSE(err, CODE_BUSY,
                  "%" PRId32 " requests of this client wait already: wait for replies, or let "
                  "newer requests supersede older ones",
                  waiting_count);
  } else {
    request->serial = ++queues->last_serial;
    *copy = *request;
    insert(queues, kind, copy);
    copy = NULL;
  }
  pthread_mutex_unlock(&queues->lock);
  free(copy);
  return code;
}

/* Reserve memory for the first request's reply. */
static bool reserve(gpufi_queues *queues, gpufi_queue_kind kind, gpufi_budget *budget) {
  const bool is_there = queues->lists[kind].head != NULL;
  const bool done = is_there && gpufi_budget_reserve(budget);
  queues->lists[kind].is_short = is_there && !done;
  return done;
}

gpufi_request *gpufi_queues_take_first(gpufi_queues *queues, gpufi_queue_kind kind,
                                       gpufi_budget *budget) {
  gpufi_request *request = NULL;
  pthread_mutex_lock(&queues->lock);
  if (reserve(queues, kind, budget)) {
    request = unlink_request(queues, kind, &queues->lists[kind].head);
    queues->lists[kind].round = request->round;
  }
  pthread_mutex_unlock(&queues->lock);
  return request;
}

gpufi_request *gpufi_queues_take(gpufi_queues *queues, const gpufi_queue_filter *filter) {
  pthread_mutex_lock(&queues->lock);
  gpufi_request *taken = take_matching(queues, filter);
  pthread_mutex_unlock(&queues->lock);
  return taken;
}

bool gpufi_queues_can_take(gpufi_queues *queues, gpufi_queue_kind kind, gpufi_budget *budget) {
  pthread_mutex_lock(&queues->lock);
  const bool can = reserve(queues, kind, budget);
  if (can) {
    gpufi_budget_unreserve(budget);
  }
  pthread_mutex_unlock(&queues->lock);
  return can;
}

bool gpufi_queues_are_short(gpufi_queues *queues) {
  bool are_short = false;
  pthread_mutex_lock(&queues->lock);
  for (int kind = 0; kind < QUEUE_COUNT; kind++) {
    are_short = are_short || (queues->lists[kind].head && queues->lists[kind].is_short);
  }
  pthread_mutex_unlock(&queues->lock);
  return are_short;
}

int32_t gpufi_queues_count(gpufi_queues *queues) {
  pthread_mutex_lock(&queues->lock);
  const int32_t count = queues->waiting_count;
  pthread_mutex_unlock(&queues->lock);
  return count;
}
