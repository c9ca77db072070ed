#include "comm/deliver.h"

#include "comm/draft.h"

void gpufi_deliver(gpufi_dispatcher *dispatcher, const gpufi_request *request, gpufi_reply *reply) {
  if (gpufi_clients_has(&dispatcher->clients, request->client)) {
    dispatcher->options.reply(dispatcher->options.arg, request->client, request->tag, reply);
  } else {
    gpufi_reply_free(reply);
  }
}

void gpufi_deliver_failure(gpufi_dispatcher *dispatcher, const gpufi_request *request,
                           gpufi_code code, const gpuf_error *err) {
  atomic_fetch_add(&dispatcher->error_count, 1);
  if (code != CODE_SUPERSEDED && code != CODE_CANCELLED) { /* which the client asked for */
    gpufi_log_failure(dispatcher, code, err->message);
  }
  gpufi_deliver(dispatcher, request, gpufi_draft_error(request, code, err, dispatcher->budget));
}

void gpufi_log_failure(gpufi_dispatcher *dispatcher, gpufi_code code, const char *text) {
  const unsigned bit = 1u << code;
  const bool first = !(atomic_fetch_or(&dispatcher->logged_codes, bit) & bit);
  if (first && dispatcher->options.log) {
    dispatcher->options.log(dispatcher->options.arg, text);
  }
}
