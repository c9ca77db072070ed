#include "comm/run.h"

#include "base/clock.h"
#include "base/floating_point.h"
#include "comm/deliver.h"
#include "comm/operation.h"

#include <stdlib.h>

/* Serving the requests for one step takes no longer than this and one request more. */
#define STEP_SERVING_MAX_NS INT64_C(2000000)
/* A hundred years: a time of the clock beyond this does not overflow. */
#define PAUSE_MAX_NS INT64_C(3155760000000000000)

void gpufi_run_request(gpufi_dispatcher *dispatcher, const gpufi_request *request) {
  gpufi_code code;
  gpuf_error err = {0};
  gpufi_reply *reply = gpufi_execute(dispatcher, request, &code, &err);
  if (code == CODE_OK && !reply) {
    code = REFUSE(&err, CODE_BUSY, "no memory for the reply: ask again later");
  }
  if (code == CODE_OK) {
    gpufi_deliver(dispatcher, request, reply);
  } else {
    gpufi_deliver_failure(dispatcher, request, code, &err);
  }
}

/* Run the request of a queue whose turn it is; false if there is none, or no memory for its
 * reply. */
static bool run_first(gpufi_dispatcher *dispatcher, gpufi_queue_kind kind) {
  gpufi_request *request = gpufi_queues_take_first(&dispatcher->queues, kind, dispatcher->budget);
  const bool served = request != NULL;
  if (served) {
    gpufi_run_request(dispatcher, request);
    gpufi_budget_unreserve(dispatcher->budget);
    free(request);
  }
  return served;
}

bool gpufi_dispatcher_run(gpufi_dispatcher *dispatcher) {
  return run_first(dispatcher, QUEUE_LIVE) &&
         gpufi_queues_can_take(&dispatcher->queues, QUEUE_LIVE, dispatcher->budget);
}

bool gpufi_dispatcher_is_short(gpufi_dispatcher *dispatcher) {
  return gpufi_queues_are_short(&dispatcher->queues);
}

/* How long no requests are served after some took `took_ns`. A share that is tiny means practically
 * never again; the quotient need not fit an integer. */
static GPUFI_NOT_INLINED int64_t pause_of(int64_t took_ns, double step_share) {
  const double pause_ns = (double)took_ns / step_share;
  return pause_ns < (double)PAUSE_MAX_NS ? (int64_t)pause_ns : PAUSE_MAX_NS;
}

/* Run requests that wait for a step, and then none for so long that step_share is kept. */
static void serve_step(gpufi_dispatcher *dispatcher) {
  const int64_t began_ns = gpufi_clock_ns();
  /* Requests that come meanwhile wait for the next step. */
  const int count = atomic_load(&dispatcher->queues.step_count);
  int64_t took_ns = 0;
  if (began_ns < dispatcher->step_next_ns) {
    return;
  }
  for (int i = 0; i < count && took_ns < STEP_SERVING_MAX_NS; i++) {
    if (!run_first(dispatcher, QUEUE_STEP)) {
      break;
    }
    took_ns = gpufi_clock_ns() - began_ns;
  }
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  dispatcher->step_next_ns = began_ns + pause_of(took_ns, dispatcher->options.step_share);
  gpufi_floating_point_end(callers);
}

/* The step is set before the count is looked at: whoever queues a request looks at the step after
 * that, so that one of the two sees the other. A step that another thread completes while requests
 * are run, or a callback that they lead to, is not waited for: it leaves the rest to later steps.
 */
void gpufi_dispatcher_step(gpufi_dispatcher *dispatcher, int64_t step, double time) {
  gpufi_steps_set(&dispatcher->steps, step, time);
  if (atomic_load(&dispatcher->queues.step_count) > 0 &&
      !atomic_exchange(&dispatcher->is_serving_step, true)) {
    serve_step(dispatcher);
    atomic_store(&dispatcher->is_serving_step, false);
  }
}
