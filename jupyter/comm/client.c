/* Clients come and go: comm_open and comm_close. */
#include "comm/deliver.h"
#include "comm/draft.h"
#include "comm/json.h"
#include "comm/parse.h"

#include <inttypes.h>

#define IN_FLIGHT_MAX 2 /* requests without a reply that a client may have; docs/protocol.md */

/* --- The hello ----------------------------------------------------------------- */

static json_t *limits_json(const gpufi_dispatcher *dispatcher) {
  json_t *limits = json_object();
  gpufi_json_put(&limits, "reply_nbytes", json_integer(GPUFI_REPLY_MAX_NBYTES));
  gpufi_json_put(&limits, "reply_json_nbytes", json_integer(GPUFI_REPLY_JSON_MAX_NBYTES));
  gpufi_json_put(&limits, "request_nbytes", json_integer(GPUFI_REQUEST_MAX_NBYTES));
  gpufi_json_put(&limits, "name_nbytes", json_integer(GPUFI_TENSOR_NAME_MAX_NBYTES));
  gpufi_json_put(&limits, "in_flight", json_integer(IN_FLIGHT_MAX));
  gpufi_json_put(&limits, "waiting", json_integer(dispatcher->options.waiting_max));
  gpufi_json_put(&limits, "shares", json_integer(dispatcher->options.share_max));
  gpufi_json_put(&limits, "bins", json_integer(GPUF_HISTOGRAM_BINS_MAX));
  return limits;
}

static json_t *operations_json(const gpufi_dispatcher_options *options) {
  json_t *operations = json_array();
  for (int op = 1; op <= OP_LAST; op++) {
    const bool steps = op == OP_SUBSCRIBE, shares = op == OP_SHARE || op == OP_UNSHARE;
    if (!(steps && options->no_steps) && !(shares && options->no_share)) {
      gpufi_json_append(&operations, json_string(gpufi_op_name(op)));
    }
  }
  return operations;
}

static gpufi_reply *make_hello(gpufi_dispatcher *dispatcher) {
  const gpufi_dispatcher_options *options = &dispatcher->options;
  gpufi_draft draft = {.json = json_object()};
  gpufi_draft_set(&draft, "op", json_string("hello"));
  gpufi_draft_set(&draft, "protocol", json_integer(GPUFI_PROTOCOL_VERSION));
  gpufi_draft_set(&draft, "version", json_string(gpuf_version()));
  gpufi_draft_set(&draft, "server", gpufi_json_text(dispatcher->server_name));
  gpufi_draft_set(&draft, "instance", json_string(dispatcher->instance));
  gpufi_draft_set(&draft, "operations", operations_json(options));
  gpufi_draft_set(&draft, "steps", json_boolean(!options->no_steps));
  gpufi_draft_set(&draft, "limits", limits_json(dispatcher));
  gpufi_steps_describe(&dispatcher->steps, &draft.json);
  return gpufi_draft_finish(&draft, dispatcher->budget);
}

/* --- Open and close ------------------------------------------------------------ */

/* Let a client in if its data allows it. */
static gpufi_code admit(gpufi_dispatcher *dispatcher, gpufi_raw data, uint64_t *client,
                        gpuf_error *err) {
  const gpufi_code code = gpufi_parse_open(data, err);
  if (code != CODE_OK) {
    return code;
  }
  bool full;
  *client = gpufi_clients_admit(&dispatcher->clients, &full);
  if (*client != 0) {
    return CODE_OK;
  }
  return full ? REFUSE(err, CODE_TOO_MANY_CLIENTS,
                       "%" PRId32 " clients are attached already: close one of them",
                       dispatcher->options.client_max)
              : REFUSE(err, CODE_BUSY, "there is no memory for another client");
}

gpuf_status gpufi_client_open(gpufi_dispatcher *dispatcher, const char *data, size_t data_nbytes,
                              uint64_t tag, uint64_t *client, gpufi_reply **refusal,
                              gpuf_error *err) {
  const gpufi_raw text = {data, data_nbytes};
  gpufi_request opening = {.op = OP_NONE, .tag = tag};
  gpuf_error cause = {0};
  const gpufi_code code = admit(dispatcher, text, &opening.client, &cause);
  *refusal = NULL;
  if (code != CODE_OK) {
    gpufi_log_failure(dispatcher, code, cause.message);
    *refusal = gpufi_draft_error(&opening, code, &cause, dispatcher->budget);
    return gpufi_fail(err,
                      code == CODE_TOO_MANY_CLIENTS ? GPUF_ERR_STATE
                      : code == CODE_BUSY           ? GPUF_ERR_NO_MEMORY
                                                    : GPUF_ERR_INVALID,
                      0, "%s", cause.message);
  }
  *client = opening.client;
  gpufi_deliver(dispatcher, &opening, make_hello(dispatcher));
  return GPUF_OK;
}

bool gpufi_client_set_owner(gpufi_dispatcher *dispatcher, uint64_t client, uint64_t owner) {
  return gpufi_clients_set_owner(&dispatcher->clients, client, owner);
}

/* The client is removed before its requests and shares are dropped: whoever adds one meanwhile
 * looks afterwards whether the client is still there. */
void gpufi_client_close(gpufi_dispatcher *dispatcher, uint64_t client) {
  const gpufi_queue_filter own = {.client = client};
  if (client != 0 && gpufi_clients_remove(&dispatcher->clients, client)) {
    gpufi_requests_free(gpufi_queues_take(&dispatcher->queues, &own));
    gpufi_shares_withdraw(&dispatcher->shares, client, NULL, NULL);
    gpufi_holds_end_of_client(dispatcher->registry, client);
  }
}
