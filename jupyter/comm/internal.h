/* What the dispatcher's files share. Names with gpufi_comm_ cross files. */
#ifndef GPUFI_COMM_INTERNAL_H
#define GPUFI_COMM_INTERNAL_H

#include "base/error.h"
#include "comm.h"

#include <gpufetch/reduce.h>
#include <gpufetch/share.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* --- Failures ----------------------------------------------------------------- */

/* The codes of error replies, in the order of their names in reply.c. */
typedef enum gpufi_comm_code {
  COMM_OK = 0,
  COMM_BAD_REQUEST,
  COMM_UNKNOWN_OP,
  COMM_UNKNOWN_NAME,
  COMM_BAD_SLICE,
  COMM_TOO_LARGE,
  COMM_STALE,
  COMM_UNREADABLE,
  COMM_UNSUPPORTED,
  COMM_BUSY,
  COMM_SUPERSEDED,
  COMM_CANCELLED,
  COMM_UNSUPPORTED_PROTOCOL,
  COMM_TOO_MANY_CLIENTS,
  COMM_INTERNAL,
} gpufi_comm_code;

/* Fill `err`, the text that goes with a code, and give the code:
 *   return COMM_FAIL(err, COMM_BAD_SLICE, "slices[%d] has step 0", axis); */
#define COMM_FAIL(err, code, ...) (gpufi_fail((err), GPUF_ERR_INVALID, 0, __VA_ARGS__), (code))

/* Copy a string whose length has been checked into an array. */
#define COMM_SET_TEXT(array, text) snprintf((array), sizeof(array), "%s", (text))

/* --- request.c, member.c --------------------------------------------------------- */

#define COMM_TOKEN_MAX_NBYTES 64 /* of an id or a key in `supersede` */
#define COMM_SHOWN_NBYTES 100    /* what a message quotes of a client's value */

typedef enum gpufi_comm_op {
  COMM_OP_NONE = 0,
  COMM_OP_LIST,
  COMM_OP_READ,
  COMM_OP_OVERVIEW,
  COMM_OP_STATS,
  COMM_OP_HISTOGRAM,
  COMM_OP_SUBSCRIBE,
  COMM_OP_SHARE,
  COMM_OP_UNSHARE,
  COMM_OP_CANCEL,
} gpufi_comm_op;

#define COMM_OP_MAX COMM_OP_CANCEL

extern const char *const gpufi_comm_op_names[COMM_OP_MAX + 1];
extern const char *const gpufi_comm_method_names[GPUF_OVERVIEW_FIRST + 1];

/* An id as the client wrote it. */
typedef struct gpufi_comm_token {
  enum { COMM_TOKEN_NONE = 0, COMM_TOKEN_INT, COMM_TOKEN_TEXT } kind;
  int64_t integer;
  char text[COMM_TOKEN_MAX_NBYTES + 1];
} gpufi_comm_token;

typedef struct gpufi_comm_slice {
  bool is_index; /* `start` is the index; the axis goes */
  bool has_start, has_stop;
  int64_t start, stop, step;
} gpufi_comm_slice;

typedef struct gpufi_comm_request {
  struct gpufi_comm_request *next; /* in a queue */
  uint64_t client, tag;
  gpufi_comm_op op;
  gpufi_comm_token id;
  gpufi_comm_token target; /* cancel: the id of another request */
  char name[GPUFI_COMM_NAME_MAX_NBYTES + 1];
  char supersede[COMM_TOKEN_MAX_NBYTES + 1]; /* "" = by nothing */
  bool at_step;
  bool has_generation, has_after, has_range;
  uint64_t generation;
  int64_t after;    /* subscribe: a step */
  int64_t skip;     /* list */
  int64_t fragment; /* read; -1 = not given */
  int64_t bins;
  double range[2];
  gpuf_dtype dtype; /* read; 0 = the tensor's */
  gpuf_overview_method method;
  int32_t slice_count;
  int32_t shape_count; /* overview; -1 = not given */
  int64_t shape[GPUF_NDIM_MAX];
  gpufi_comm_slice slices[GPUF_NDIM_MAX];
} gpufi_comm_request;

/* Parse and check a request as far as that goes without its tensor. After a failure too, `op` and
 * `id` are what could be read of them. */
gpufi_comm_code gpufi_comm_request_parse(const char *text, size_t nbytes,
                                         gpufi_comm_request *request, gpuf_error *err);
/* The value of comm_open: NULL or an object that asks for this protocol. */
gpufi_comm_code gpufi_comm_open_parse(const char *text, size_t nbytes, gpuf_error *err);

/* A client's value for a message: its JSON in ASCII, cut to what fits. `text` holds
 * COMM_SHOWN_NBYTES. */
const char *gpufi_comm_show(const json_t *value, char *text);
bool gpufi_comm_token_equal(const gpufi_comm_token *a, const gpufi_comm_token *b);

/* Fill the field of one member; in member.c. False: `key` is no member of this operation's. */
bool gpufi_comm_member_parse(const char *key, const json_t *value, gpufi_comm_request *request,
                             gpufi_comm_code *code, gpuf_error *err);
/* Check that what the operation needs was given. */
gpufi_comm_code gpufi_comm_members_check(const gpufi_comm_request *request, gpuf_error *err);
gpufi_comm_code gpufi_comm_token_parse(const char *what, const json_t *value,
                                       gpufi_comm_token *token, gpuf_error *err);
/* Names of tensors and values: 1 to GPUFI_COMM_NAME_MAX_NBYTES bytes, no control characters. */
bool gpufi_comm_name_valid(const char *name, size_t nbytes);

/* --- registry.c ----------------------------------------------------------------- */

/* A tensor that can be read. Counts are guarded by the dispatcher's lock; the rest does not change
 * while anyone holds a reference, but for `next`, `published` and, of a published entry, the stream
 * and the owner in `source`, which the lock guards too. */
typedef struct gpufi_comm_entry {
  struct gpufi_comm_entry *next;
  gpufi_comm *comm;
  gpufi_comm_source source;
  uint64_t generation;  /* 0 = found by the resolver: not in the registry */
  bool published;       /* it is what its name stands for */
  int32_t reader_count; /* operations that run */
  int32_t share_count;  /* shares that are not over */
  char name[GPUFI_COMM_NAME_MAX_NBYTES + 1];
} gpufi_comm_entry;

typedef struct gpufi_comm_value {
  struct gpufi_comm_value *next;
  json_t *json; /* never changed, and its references are counted under the lock */
  char name[GPUFI_COMM_NAME_MAX_NBYTES + 1];
} gpufi_comm_value;

/* Whether two descriptors name the same elements in the same layout. */
bool gpufi_comm_same_memory(const gpuf_tensor *a, const gpuf_tensor *b);
/* For names that the program gives. */
gpuf_status gpufi_comm_name_check(const char *name, gpuf_error *err);
/* Find a request's tensor and count a reader of it. tensor->stream is what the read has to wait
 * for: nothing for a live read of a published tensor. */
gpufi_comm_code gpufi_comm_entry_acquire(gpufi_comm *comm, const gpufi_comm_request *request,
                                         gpufi_comm_entry **entry, gpuf_tensor *tensor,
                                         gpuf_error *err);
void gpufi_comm_entry_release(gpufi_comm_entry *entry);
/* One share more or less; the last use of an entry that is not published frees it. */
void gpufi_comm_entry_share_begin(gpufi_comm_entry *entry);
void gpufi_comm_entry_share_end(void *entry);
/* Withdraw everything, and wait for importers until `timeout_ns` is over. */
gpuf_status gpufi_comm_registry_clear(gpufi_comm *comm, int64_t timeout_ns, gpuf_error *err);
/* --- list.c ---------------------------------------------------------------------- */

/* Members `values`, `tensors` and `truncated` of a listing. */
gpufi_comm_code gpufi_comm_list(gpufi_comm *comm, int64_t skip, json_t *object, gpuf_error *err);
/* False if there is none of that name. */
bool gpufi_comm_value_remove(gpufi_comm *comm, const char *name);
void gpufi_comm_values_clear(gpufi_comm *comm);

/* --- shares.c --------------------------------------------------------------------- */

typedef struct gpufi_comm_share {
  struct gpufi_comm_share *next;
  uint64_t client;
  gpufi_comm_entry *entry; /* alive: the share counts */
  gpuf_share_handle handle;
} gpufi_comm_share;

gpufi_comm_code gpufi_comm_share_make(gpufi_comm *comm, const gpufi_comm_request *request,
                                      gpufi_comm_entry *entry, const gpuf_tensor *tensor,
                                      gpuf_share_handle *handle, gpuf_error *err);
/* Withdraw the shares of a client (0 = of any) that are of a name and of an entry (NULL = of any).
 * Returns how many. */
int32_t gpufi_comm_shares_withdraw(gpufi_comm *comm, uint64_t client, const char *name,
                                   const gpufi_comm_entry *entry);

/* --- reply.c ------------------------------------------------------------------------ */

/* Counts the memory of replies; outlives the dispatcher until the last reply is freed. */
typedef struct gpufi_comm_budget {
  atomic_size_t used_nbytes;
  atomic_int reference_count;
} gpufi_comm_budget;

/* The most that one reply takes. */
#define COMM_REPLY_COST_NBYTES (GPUFI_COMM_REPLY_MAX_NBYTES + GPUFI_COMM_REPLY_JSON_MAX_NBYTES)

/* A reply in the making: JSON and buffers. */
typedef struct gpufi_comm_draft {
  json_t *json;
  size_t buffer_count;
  struct {
    void *data;
    size_t nbytes;
    bool pinned; /* from the pool, else from malloc */
  } buffers[GPUFI_COMM_BUFFERS_MAX];
} gpufi_comm_draft;

/* Set aside what a reply may take; false if the budget does not allow it. */
bool gpufi_comm_budget_reserve(gpufi_comm *comm);
void gpufi_comm_budget_unreserve(gpufi_comm *comm);
void gpufi_comm_budget_drop(gpufi_comm_budget *budget);

/* The next buffer of a draft; `device` is where its contents come from. */
gpufi_comm_code gpufi_comm_draft_buffer(gpufi_comm_draft *draft, gpuf_device device, size_t nbytes,
                                        void **data, gpuf_error *err);
/* Turn a draft into a reply, or free it. NULL where there is no memory; the draft is gone. */
gpufi_comm_reply *gpufi_comm_draft_finish(gpufi_comm *comm, gpufi_comm_draft *draft);
void gpufi_comm_draft_clear(gpufi_comm_draft *draft);

/* {"op", "id"}: how every reply begins. */
json_t *gpufi_comm_envelope(const gpufi_comm_request *request);
gpufi_comm_reply *gpufi_comm_error_reply(gpufi_comm *comm, const gpufi_comm_request *request,
                                         gpufi_comm_code code, const gpuf_error *err);
/* Members `step` and `time`. */
void gpufi_comm_set_step(gpufi_comm *comm, json_t *object);

/* COMM_OK, or a code with a text that names the tensor and quotes `cause`. */
gpufi_comm_code gpufi_comm_core_failure(gpuf_status status, const char *doing, const char *name,
                                        const gpuf_error *cause, gpuf_error *err);

/* Numbers as JSON: what JSON cannot say is a string ("nan", "inf", "-inf", "18446744073709551615").
 */
json_t *gpufi_comm_json_f64(double value);
json_t *gpufi_comm_json_u64(uint64_t value);
json_t *gpufi_comm_json_shape(const int64_t *shape, int32_t count);
/* Text that may not be UTF-8. */
json_t *gpufi_comm_json_text(const char *text);

/* --- operation.c, select.c ------------------------------------------------------------ */

/* Run a request on this thread and give the reply, that of an error if *code is one; NULL without
 * memory. */
gpufi_comm_reply *gpufi_comm_execute(gpufi_comm *comm, const gpufi_comm_request *request,
                                     gpufi_comm_code *code);

/* Narrow `tensor` by the slices. */
gpufi_comm_code gpufi_comm_select(const gpufi_comm_request *request, gpuf_tensor *tensor,
                                  gpuf_error *err);
/* Where a fragment of a selection lies. */
typedef struct gpufi_comm_fragment {
  int64_t count;        /* fragments of the whole */
  size_t offset_nbytes; /* of the fragment in the whole, in C order */
} gpufi_comm_fragment;
/* Narrow `tensor` to fragment number `index` of the fewest fragments that are packed runs of the
 * whole in C order and fit a reply. */
gpufi_comm_code gpufi_comm_select_fragment(gpuf_tensor *tensor, size_t element_nbytes,
                                           int64_t index, gpufi_comm_fragment *fragment,
                                           gpuf_error *err);

/* --- comm.c, queue.c ----------------------------------------------------------------------- */

typedef struct gpufi_comm_client {
  struct gpufi_comm_client *next;
  uint64_t id;
  int32_t waiting_count;
} gpufi_comm_client;

typedef struct gpufi_comm_queue {
  gpufi_comm_request *head, **tail;
} gpufi_comm_queue;

struct gpufi_comm {
  atomic_int reference_count; /* its creator and each entry */
  gpufi_comm_options options; /* with the defaults filled in; constant */
  char server_name[64];
  char instance[17]; /* random: tells a client that the server has started anew */
  gpufi_comm_budget *budget;

  pthread_mutex_t lock;   /* guards what follows; never held in a callback or a copy */
  pthread_cond_t changed; /* an entry's reader_count or share_count went down */
  gpufi_comm_client *clients;
  gpufi_comm_entry *entries; /* by name; also those replaced or withdrawn that are in use */
  gpufi_comm_value *values;  /* by name */
  gpufi_comm_share *shares;
  gpufi_comm_queue live, at_step;
  uint64_t last_client, last_generation;
  uint32_t logged; /* a bit for each code */
  gpufi_comm_counts counts;

  atomic_int step_waiting_count; /* length of at_step */
  /* The last step: a sequence lock with one writer. Odd while it changes, 0 before the first. */
  atomic_uint_least64_t step_sequence;
  atomic_int_least64_t step;
  atomic_uint_least64_t step_time_bits;
  int64_t step_next_ns; /* the stepping thread's own: when requests may be served again */
};

void gpufi_comm_unref(gpufi_comm *comm);
gpufi_comm_client *gpufi_comm_client_find(gpufi_comm *comm, uint64_t id); /* under the lock */
/* Hand a reply over unless its client is gone. */
void gpufi_comm_deliver(gpufi_comm *comm, uint64_t client, uint64_t tag, gpufi_comm_reply *reply,
                        gpufi_comm_code code);
/* Tell the log about a failure, once for each code. */
void gpufi_comm_log(gpufi_comm *comm, gpufi_comm_code code, const char *text);
/* Drop what waits of a client (0 = of all). */
void gpufi_comm_queue_drop(gpufi_comm *comm, uint64_t client);
/* False before the first step. */
bool gpufi_comm_last_step(gpufi_comm *comm, int64_t *step, double *time);

#endif
