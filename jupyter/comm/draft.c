#include "comm/draft.h"

#include "comm/json.h"

#include <stdlib.h>
#include <string.h>

/* --- A reply's memory ---------------------------------------------------------- */

/* A reply as its owner sees it, and what frees it. */
typedef struct owned_reply {
  gpufi_reply reply; /* first: a pointer to it is one to the whole */
  gpufi_budget *budget;
  size_t nbytes; /* counted in the budget */
  bool pinned[GPUFI_REPLY_BUFFERS_MAX];
} owned_reply;

static void free_buffer(void *data, bool pinned) {
  if (pinned) {
    gpuf_pool_release(data, NULL);
  } else {
    free(data);
  }
}

void gpufi_reply_free(gpufi_reply *reply) {
  if (!reply) {
    return;
  }
  owned_reply *owned = (owned_reply *)reply;
  for (size_t i = 0; i < reply->buffer_count; i++) {
    free_buffer((void *)reply->buffers[i], owned->pinned[i]);
  }
  free((char *)reply->json);
  gpufi_budget_remove(owned->budget, owned->nbytes);
  free(owned);
}

/* --- Drafts -------------------------------------------------------------------- */

gpufi_draft gpufi_draft_begin(const gpufi_request *request) {
  gpufi_draft draft = {.json = json_object()};
  const gpufi_token *id = &request->id;
  if (request->op != OP_NONE) {
    gpufi_draft_set(&draft, "op", json_string(gpufi_op_name(request->op)));
  }
  if (id->kind != TOKEN_NONE) {
    gpufi_draft_set(&draft, "id",
                    id->kind == TOKEN_INT ? json_integer(id->integer) : json_string(id->text));
  }
  return draft;
}

void gpufi_draft_set(gpufi_draft *draft, const char *key, json_t *value) {
  gpufi_json_put(&draft->json, key, value);
}

gpufi_code gpufi_draft_add_buffer(gpufi_draft *draft, gpuf_device device, size_t nbytes,
                                  void **data, gpuf_error *err) {
  const size_t i = draft->buffer_count;
  void *memory = NULL;
  bool pinned = false;
  if (nbytes > 0 && device.kind != GPUF_DEVICE_CPU) {
    pinned = gpuf_pool_acquire(device, nbytes, &memory, NULL) == GPUF_OK;
  }
  if (!pinned) { /* also where the pool is at its limit: the copy goes through staging then */
    memory = malloc(nbytes > 0 ? nbytes : 1);
  }
  if (!memory) {
    return REFUSE(err, CODE_BUSY, "no memory for a reply of %zu bytes: ask again later", nbytes);
  }
  draft->buffers[i].data = memory;
  draft->buffers[i].nbytes = nbytes;
  draft->buffers[i].pinned = pinned;
  draft->buffer_count = i + 1;
  *data = memory;
  return CODE_OK;
}

void gpufi_draft_clear(gpufi_draft *draft) {
  for (size_t i = 0; i < draft->buffer_count; i++) {
    free_buffer(draft->buffers[i].data, draft->buffers[i].pinned);
  }
  json_decref(draft->json);
  *draft = (gpufi_draft){0};
}

gpufi_reply *gpufi_draft_finish(gpufi_draft *draft, gpufi_budget *budget) {
  owned_reply *owned = calloc(1, sizeof(*owned));
  char *text = gpufi_json_dump(draft->json, JSON_COMPACT);
  if (!owned || !text) {
    free(owned);
    free(text);
    gpufi_draft_clear(draft);
    return NULL;
  }
  gpufi_reply *reply = &owned->reply;
  reply->json = text;
  reply->json_nbytes = strlen(text);
  reply->buffer_count = draft->buffer_count;
  owned->nbytes = sizeof(*owned) + reply->json_nbytes;
  for (size_t i = 0; i < draft->buffer_count; i++) {
    reply->buffers[i] = draft->buffers[i].data;
    reply->buffer_nbytes[i] = draft->buffers[i].nbytes;
    owned->pinned[i] = draft->buffers[i].pinned;
    owned->nbytes += draft->buffers[i].nbytes;
  }
  owned->budget = budget;
  gpufi_budget_add(budget, owned->nbytes);
  draft->buffer_count = 0; /* the buffers are the reply's now */
  gpufi_draft_clear(draft);
  return reply;
}

gpufi_reply *gpufi_draft_error(const gpufi_request *request, gpufi_code code, const gpuf_error *err,
                               gpufi_budget *budget) {
  gpufi_draft draft = gpufi_draft_begin(request);
  json_t *error = json_object();
  gpufi_json_put(&error, "code", json_string(gpufi_code_name(code)));
  gpufi_json_put(&error, "message", gpufi_json_text(err->message));
  gpufi_draft_set(&draft, "error", error);
  return gpufi_draft_finish(&draft, budget);
}
