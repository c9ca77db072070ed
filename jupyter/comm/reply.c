/* Replies: their memory, which is counted, and their JSON. */
#include "internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- Memory ----------------------------------------------------------------------------- */

/* The reply as its owner sees it, and what frees it. */
typedef struct reply_block {
  gpufi_comm_reply reply; /* first: a pointer to it is one to the block */
  gpufi_comm_budget *budget;
  size_t nbytes; /* counted in the budget */
  bool pinned[GPUFI_COMM_BUFFERS_MAX];
} reply_block;

bool gpufi_comm_budget_reserve(gpufi_comm *comm) {
  const size_t before = atomic_fetch_add(&comm->budget->used_nbytes, COMM_REPLY_COST_NBYTES);
  if (before + COMM_REPLY_COST_NBYTES > comm->options.reply_memory_nbytes) {
    gpufi_comm_budget_unreserve(comm);
    return false;
  }
  return true;
}

void gpufi_comm_budget_unreserve(gpufi_comm *comm) {
  atomic_fetch_sub(&comm->budget->used_nbytes, COMM_REPLY_COST_NBYTES);
}

void gpufi_comm_budget_drop(gpufi_comm_budget *budget) {
  if (atomic_fetch_sub(&budget->reference_count, 1) == 1) {
    free(budget);
  }
}

static void free_buffer(void *data, bool pinned) {
  if (pinned) {
    gpuf_pool_release(data);
  } else {
    free(data);
  }
}

gpufi_comm_code gpufi_comm_draft_buffer(gpufi_comm_draft *draft, gpuf_device device, size_t nbytes,
                                        void **data, gpuf_error *err) {
  const size_t i = draft->buffer_count;
  void *memory = NULL;
  bool pinned = false;
  if (nbytes > 0 && device.kind != GPUF_DEVICE_CPU) {
    pinned = gpuf_pool_acquire(device, nbytes, &memory, NULL) == GPUF_OK;
  }
  if (!pinned) { /* also where the pool is at its cap: what comes is copied through staging */
    memory = malloc(nbytes > 0 ? nbytes : 1);
  }
  if (!memory) {
    return COMM_FAIL(err, COMM_BUSY, "no memory for a reply of %zu bytes: ask again later", nbytes);
  }
  draft->buffers[i].data = memory;
  draft->buffers[i].nbytes = nbytes;
  draft->buffers[i].pinned = pinned;
  draft->buffer_count = i + 1;
  *data = memory;
  return COMM_OK;
}

void gpufi_comm_draft_clear(gpufi_comm_draft *draft) {
  for (size_t i = 0; i < draft->buffer_count; i++) {
    free_buffer(draft->buffers[i].data, draft->buffers[i].pinned);
  }
  json_decref(draft->json);
  *draft = (gpufi_comm_draft){0};
}

gpufi_comm_reply *gpufi_comm_draft_finish(gpufi_comm *comm, gpufi_comm_draft *draft) {
  reply_block *block = calloc(1, sizeof(*block));
  char *text = draft->json ? json_dumps(draft->json, JSON_COMPACT) : NULL;
  if (!block || !text) {
    free(block);
    free(text);
    gpufi_comm_draft_clear(draft);
    return NULL;
  }
  block->reply.json = text;
  block->reply.json_nbytes = strlen(text);
  block->nbytes = sizeof(*block) + block->reply.json_nbytes;
  block->reply.buffer_count = draft->buffer_count;
  for (size_t i = 0; i < draft->buffer_count; i++) {
    block->reply.buffers[i] = draft->buffers[i].data;
    block->reply.buffer_nbytes[i] = draft->buffers[i].nbytes;
    block->pinned[i] = draft->buffers[i].pinned;
    block->nbytes += draft->buffers[i].nbytes;
  }
  block->budget = comm->budget;
  atomic_fetch_add(&block->budget->reference_count, 1);
  atomic_fetch_add(&block->budget->used_nbytes, block->nbytes);
  draft->buffer_count = 0; /* they are the reply's */
  gpufi_comm_draft_clear(draft);
  return &block->reply;
}

void gpufi_comm_reply_free(gpufi_comm_reply *reply) {
  if (!reply) {
    return;
  }
  reply_block *block = (reply_block *)reply;
  for (size_t i = 0; i < reply->buffer_count; i++) {
    free_buffer((void *)reply->buffers[i], block->pinned[i]);
  }
  free((char *)reply->json);
  atomic_fetch_sub(&block->budget->used_nbytes, block->nbytes);
  gpufi_comm_budget_drop(block->budget);
  free(block);
}

/* --- JSON --------------------------------------------------------------------------------- */

json_t *gpufi_comm_json_f64(double value) {
  if (isnan(value)) {
    return json_string("nan");
  }
  return isinf(value) ? json_string(value > 0 ? "inf" : "-inf") : json_real(value);
}

json_t *gpufi_comm_json_u64(uint64_t value) {
  char text[24];
  if (value <= INT64_MAX) {
    return json_integer((json_int_t)value);
  }
  snprintf(text, sizeof(text), "%" PRIu64, value);
  return json_string(text);
}

json_t *gpufi_comm_json_shape(const int64_t *shape, int32_t count) {
  json_t *array = json_array();
  for (int32_t axis = 0; axis < count; axis++) {
    json_array_append_new(array, json_integer(shape[axis]));
  }
  return array;
}

json_t *gpufi_comm_json_text(const char *text) {
  char plain[GPUF_ERROR_MESSAGE_NBYTES];
  json_t *string = json_string(text);
  if (!string) { /* cut in the middle of a character, or not UTF-8 at all */
    snprintf(plain, sizeof(plain), "%s", text);
    for (char *c = plain; *c; c++) {
      *c = (signed char)*c < 0 ? '?' : *c;
    }
    string = json_string(plain);
  }
  return string;
}

static json_t *token_json(const gpufi_comm_token *token) {
  return token->kind == COMM_TOKEN_INT ? json_integer(token->integer) : json_string(token->text);
}

json_t *gpufi_comm_envelope(const gpufi_comm_request *request) {
  json_t *object = json_object();
  if (request->op != COMM_OP_NONE) {
    json_object_set_new(object, "op", json_string(gpufi_comm_op_names[request->op]));
  }
  if (request->id.kind != COMM_TOKEN_NONE) {
    json_object_set_new(object, "id", token_json(&request->id));
  }
  return object;
}

void gpufi_comm_set_step(gpufi_comm *comm, json_t *object) {
  int64_t step;
  double time;
  const bool any = gpufi_comm_last_step(comm, &step, &time);
  json_object_set_new(object, "step", any ? json_integer(step) : json_null());
  json_object_set_new(object, "time", any ? gpufi_comm_json_f64(time) : json_null());
}

/* --- Errors --------------------------------------------------------------------------------- */

static const char *const code_names[] = {
    [COMM_OK] = "",
    [COMM_BAD_REQUEST] = "bad_request",
    [COMM_UNKNOWN_OP] = "unknown_op",
    [COMM_UNKNOWN_NAME] = "unknown_name",
    [COMM_BAD_SLICE] = "bad_slice",
    [COMM_TOO_LARGE] = "too_large",
    [COMM_STALE] = "stale",
    [COMM_UNREADABLE] = "unreadable",
    [COMM_UNSUPPORTED] = "unsupported",
    [COMM_BUSY] = "busy",
    [COMM_SUPERSEDED] = "superseded",
    [COMM_CANCELLED] = "cancelled",
    [COMM_UNSUPPORTED_PROTOCOL] = "unsupported_protocol",
    [COMM_TOO_MANY_CLIENTS] = "too_many_clients",
    [COMM_INTERNAL] = "internal",
};

gpufi_comm_code gpufi_comm_core_failure(gpuf_status status, const char *doing, const char *name,
                                        const gpuf_error *cause, gpuf_error *err) {
  gpufi_comm_code code = COMM_UNREADABLE;
  switch (status) {
  case GPUF_OK:
    return COMM_OK;
  case GPUF_ERR_UNSUPPORTED:
    code = COMM_UNSUPPORTED;
    break;
  case GPUF_ERR_INVALID:
    code = COMM_BAD_REQUEST;
    break;
  case GPUF_ERR_NO_MEMORY:
  case GPUF_ERR_NO_DEVICE_MEMORY:
    code = COMM_BUSY;
    break;
  default:
    break;
  }
  return COMM_FAIL(err, code, "cannot %s %s: %s", doing, name, cause->message);
}

gpufi_comm_reply *gpufi_comm_error_reply(gpufi_comm *comm, const gpufi_comm_request *request,
                                         gpufi_comm_code code, const gpuf_error *err) {
  gpufi_comm_draft draft = {.json = gpufi_comm_envelope(request)};
  json_t *error = json_object();
  json_object_set_new(error, "code", json_string(code_names[code]));
  json_object_set_new(error, "message", gpufi_comm_json_text(err->message));
  json_object_set_new(draft.json, "error", error);
  return gpufi_comm_draft_finish(comm, &draft);
}
