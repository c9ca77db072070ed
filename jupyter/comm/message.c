/* Messages of clients: what is answered at once, and what waits. */
#include "comm/deliver.h"
#include "comm/draft.h"
#include "comm/parse.h"
#include "comm/run.h"

#include <stdlib.h>

/* Answer and free a list of requests that will not be run; returns how many. */
static int32_t fail_all(gpufi_dispatcher *dispatcher, gpufi_request *requests, gpufi_code code,
                        const char *text) {
  int32_t count = 0;
  gpuf_error err;
  gpufi_fail(&err, GPUF_ERR_STATE, 0, "%s", text);
  for (const gpufi_request *r = requests; r; r = r->next) {
    gpufi_deliver_failure(dispatcher, r, code, &err);
    count++;
  }
  gpufi_requests_free(requests);
  return count;
}

static void cancel(gpufi_dispatcher *dispatcher, const gpufi_request *request) {
  const gpufi_queue_filter filter = {.client = request->client, .id = &request->target};
  gpufi_draft draft = gpufi_draft_begin(request);
  const int32_t count = fail_all(dispatcher, gpufi_queues_take(&dispatcher->queues, &filter),
                                 CODE_CANCELLED, "cancelled by its client");
  gpufi_draft_set(&draft, "cancelled", json_integer(count));
  gpufi_deliver(dispatcher, request, gpufi_draft_finish(&draft, dispatcher->budget));
}

/* Put a request into a queue, in place of those that it supersedes. */
static gpufi_code enqueue(gpufi_dispatcher *dispatcher, gpufi_queue_kind kind,
                          gpufi_request *request, gpuf_error *err) {
  const gpufi_queue_filter own = {.client = request->client};
  gpufi_request *superseded;
  const gpufi_code code = gpufi_queues_put(&dispatcher->queues, kind, request, &superseded, err);
  fail_all(dispatcher, superseded, CODE_SUPERSEDED, "a newer request has taken this one's place");
  /* Whoever closes the client removes it before its requests: one of the two threads drops this
   * one. */
  if (!gpufi_clients_has(&dispatcher->clients, request->client)) {
    gpufi_requests_free(gpufi_queues_take(&dispatcher->queues, &own));
  }
  return code;
}

/* Whether a subscription is to be answered now, which came when there were `count` steps. The
 * numbers of two steps may be equal. */
static bool is_due(gpufi_dispatcher *dispatcher, const gpufi_request *request, uint64_t count) {
  int64_t step;
  double time;
  return request->op == OP_SUBSCRIBE &&
         (gpufi_steps_count(&dispatcher->steps) != count ||
          (request->has_after && gpufi_steps_last(&dispatcher->steps, &step, &time) &&
           step != request->after));
}

static gpufi_code wait_for_step(gpufi_dispatcher *dispatcher, gpufi_request *request,
                                gpuf_error *err) {
  const uint64_t count = gpufi_steps_count(&dispatcher->steps);
  const gpufi_code code = enqueue(dispatcher, QUEUE_STEP, request, err);
  /* A step that was completed before the request was in the queue did not see it; one that is
   * completed now does. */
  if (code == CODE_OK && is_due(dispatcher, request, count)) {
    const gpufi_queue_filter filter = {.serial = request->serial};
    gpufi_request *late = gpufi_queues_take(&dispatcher->queues, &filter);
    if (late) {
      gpufi_run_request(dispatcher, late);
      free(late);
    }
  }
  return code;
}

static gpufi_code run_at_once(gpufi_dispatcher *dispatcher, const gpufi_request *request,
                              gpuf_error *err) {
  if (!gpufi_budget_reserve(dispatcher->budget)) {
    return REFUSE(err, CODE_BUSY,
                  "replies that are not sent yet fill the %zu bytes allowed for them: read them "
                  "and ask again",
                  dispatcher->options.reply_memory_nbytes);
  }
  gpufi_run_request(dispatcher, request);
  gpufi_budget_unreserve(dispatcher->budget);
  return CODE_OK;
}

/* Run, queue or answer a request that is well formed. */
static gpufi_code dispatch(gpufi_dispatcher *dispatcher, gpufi_request *request, gpuf_error *err) {
  const gpufi_dispatcher_options *options = &dispatcher->options;
  const bool steps = request->at_step || request->op == OP_SUBSCRIBE;
  if (steps && options->no_steps) {
    return REFUSE(err, CODE_UNSUPPORTED, "this server has no steps: ask for \"at\": \"live\"");
  }
  if (options->no_share && (request->op == OP_SHARE || request->op == OP_UNSHARE)) {
    return REFUSE(err, CODE_UNSUPPORTED, "this server shares no memory: use read");
  }
  if (request->op == OP_CANCEL) {
    cancel(dispatcher, request);
    return CODE_OK;
  }
  if (steps) {
    return wait_for_step(dispatcher, request, err);
  }
  return options->run_in_message ? run_at_once(dispatcher, request, err)
                                 : enqueue(dispatcher, QUEUE_LIVE, request, err);
}

/* A message of a client: `problem`, if there is one, is why it is refused. */
static bool take_message(gpufi_dispatcher *dispatcher, uint64_t client, gpufi_raw data,
                         size_t buffer_count, const char *problem, uint64_t tag) {
  gpufi_request request;
  gpuf_error err = {0};
  uint64_t owner;
  if (!gpufi_clients_find_owner(&dispatcher->clients, client, &owner)) {
    return false;
  }
  atomic_fetch_add(&dispatcher->request_count, 1);
  gpufi_code code = gpufi_parse_request(data, &request, &err);
  request.client = client;
  request.owner = owner;
  request.tag = tag;
  if (problem) {
    code = REFUSE(&err, CODE_BAD_REQUEST, "a message that cannot be read: %s", problem);
  }
  if (code == CODE_OK && buffer_count > 0) {
    code = REFUSE(&err, CODE_BAD_REQUEST, "a request with %zu binary buffers; it has none",
                  buffer_count);
  }
  if (code == CODE_OK) {
    code = dispatch(dispatcher, &request, &err);
  }
  if (code != CODE_OK) {
    gpufi_deliver_failure(dispatcher, &request, code, &err);
  }
  return true;
}

bool gpufi_dispatcher_message(gpufi_dispatcher *dispatcher, uint64_t client, const char *data,
                              size_t data_nbytes, size_t buffer_count, uint64_t tag) {
  return take_message(dispatcher, client, (gpufi_raw){data, data_nbytes}, buffer_count, NULL, tag);
}

bool gpufi_dispatcher_refuse(gpufi_dispatcher *dispatcher, uint64_t client, const char *data,
                             size_t data_nbytes, const char *problem, uint64_t tag) {
  return take_message(dispatcher, client, (gpufi_raw){data, data_nbytes}, 0, problem, tag);
}
