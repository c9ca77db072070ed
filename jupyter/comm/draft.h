/* Replies in the making: JSON and buffers. A draft belongs to one thread. */
#ifndef GPUFI_COMM_DRAFT_H
#define GPUFI_COMM_DRAFT_H

#include "comm/budget.h"
#include "comm/failure.h"
#include "comm/reply.h"
#include "comm/request.h"

#include <jansson.h>

typedef struct gpufi_draft {
  json_t *json; /* an object; NULL where there was no memory, which gpufi_draft_finish reports */
  size_t buffer_count;
  struct {
    void *data;
    size_t nbytes;
    bool pinned; /* from the pool, else from malloc */
  } buffers[GPUFI_REPLY_BUFFERS_MAX];
} gpufi_draft;

/* A draft with the members `op` and `id`, with which every answer to a request begins. */
gpufi_draft gpufi_draft_begin(const gpufi_request *request);
/* Takes over `value`. */
void gpufi_draft_set(gpufi_draft *draft, const char *key, json_t *value);
/* Add a buffer; its contents will come from `device`. */
gpufi_code gpufi_draft_add_buffer(gpufi_draft *draft, gpuf_device device, size_t nbytes,
                                  void **data, gpuf_error *err);
/* Turn a draft into a reply, which counts in `budget`. NULL where there is no memory. The draft is
 * empty afterwards in both cases. */
gpufi_reply *gpufi_draft_finish(gpufi_draft *draft, gpufi_budget *budget);
void gpufi_draft_clear(gpufi_draft *draft);

/* The reply to a request that failed. NULL where there is no memory. */
gpufi_reply *gpufi_draft_error(const gpufi_request *request, gpufi_code code, const gpuf_error *err,
                               gpufi_budget *budget);

#endif
