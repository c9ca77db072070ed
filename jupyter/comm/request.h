/* A request, as far as it can be checked without its tensor. A value type: it owns nothing. */
#ifndef GPUFI_COMM_REQUEST_H
#define GPUFI_COMM_REQUEST_H

#include "comm/protocol.h"

#include <gpufetch/reduce.h>

typedef enum gpufi_op {
  OP_NONE = 0,
  OP_LIST,
  OP_READ,
  OP_OVERVIEW,
  OP_STATS,
  OP_HISTOGRAM,
  OP_SUBSCRIBE,
  OP_SHARE,
  OP_UNSHARE,
  OP_CANCEL,
} gpufi_op;

#define OP_LAST OP_CANCEL

/* The protocol's names of a gpufi_op and of a method of overviews (gpufetch/reduce.h). */
const char *gpufi_op_name(int op);
const char *gpufi_method_name(int method);

/* An id as the client wrote it. */
typedef struct gpufi_token {
  enum { TOKEN_NONE = 0, TOKEN_INT, TOKEN_TEXT } kind;
  int64_t integer;
  char text[GPUFI_TOKEN_MAX_NBYTES + 1];
} gpufi_token;

bool gpufi_token_equal(const gpufi_token *a, const gpufi_token *b);

/* An item of `slices`. */
typedef struct gpufi_slice {
  bool is_index; /* `start` is the index, and the axis is dropped */
  bool has_start, has_stop;
  int64_t start, stop, step;
} gpufi_slice;

typedef struct gpufi_request {
  struct gpufi_request *next; /* in a queue */
  uint64_t serial;            /* given by the queue */
  uint64_t round;             /* in which it is run: given by the queue */
  uint64_t owner;             /* its client's; requests of different owners take turns */
  uint64_t client, tag;
  gpufi_op op;
  gpufi_token id;
  gpufi_token target; /* cancel: the id of another request */
  char name[GPUFI_TENSOR_NAME_MAX_NBYTES + 1];
  char supersede[GPUFI_TOKEN_MAX_NBYTES + 1]; /* "" = no key */
  bool at_step;
  bool hold;
  bool has_after, has_range;
  int64_t generation;  /* 0 = any */
  int64_t publication; /* 0 = any */
  int64_t after;       /* subscribe: a step */
  int64_t skip;        /* list */
  int64_t fragment;    /* read; -1 = not given */
  int64_t bins;
  double range[2];
  gpuf_dtype dtype; /* read; 0 = the tensor's */
  gpuf_overview_method method;
  int32_t slice_count;
  int32_t shape_count; /* overview; -1 = not given */
  int64_t shape[GPUF_NDIM_MAX];
  gpufi_slice slices[GPUF_NDIM_MAX];
} gpufi_request;

#endif
