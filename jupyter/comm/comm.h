/* The dispatcher of the comm protocol (docs/protocol.md): a registry of named tensors and values,
 * and the answers to what clients ask about them. It knows no transport: requests come in by
 * gpufi_comm_message, replies go out by a callback.
 *
 *   comm.c       creation, clients
 *   registry.c   published tensors, and how long they live
 *   request.c    a request's JSON, checked: the one parser of what comes from outside
 *   member.c     the members of requests, one by one
 *   queue.c      messages: what is answered at once, what waits, and running it
 *   operation.c  the operations
 *   select.c     slices, and parts of what is too large for one reply
 *   reply.c      replies and their memory
 *   list.c       published values, and the listing
 *   shares.c     tensors that are shared with clients
 *
 * Everything a client sends is untrusted. Memory is bounded by the options: requests that wait,
 * clients, and replies that the transport has not freed yet.
 *
 * Thread-safety: every function may be called from any thread at any time, except that
 * gpufi_comm_destroy must be the last call. No lock is held while a callback runs.
 *
 * In a build without jansson, gpufi_comm_create fails with GPUF_ERR_UNSUPPORTED. */
#ifndef GPUFI_COMM_H
#define GPUFI_COMM_H

#include <gpufetch/gpufetch.h>

#define GPUFI_COMM_TARGET "gpufetch" /* the comm target's name */
#define GPUFI_COMM_PROTOCOL 1

#define GPUFI_COMM_REPLY_MAX_NBYTES ((size_t)4 << 20) /* buffers of one reply, together */
#define GPUFI_COMM_REPLY_JSON_MAX_NBYTES ((size_t)256 << 10)
#define GPUFI_COMM_REQUEST_MAX_NBYTES ((size_t)16 << 10) /* JSON; requests have no buffers */
#define GPUFI_COMM_NAME_MAX_NBYTES 200
#define GPUFI_COMM_TEXT_MAX_NBYTES 4096
#define GPUFI_COMM_BUFFERS_MAX 2

typedef struct gpufi_comm gpufi_comm;

/* --- Replies ---------------------------------------------------------------- */

/* Owned by whoever got it, until gpufi_comm_reply_free; the memory counts against
 * reply_memory_nbytes until then. */
typedef struct gpufi_comm_reply {
  const char *json; /* one object, UTF-8, NUL-terminated */
  size_t json_nbytes;
  size_t buffer_count;
  const void *buffers[GPUFI_COMM_BUFFERS_MAX]; /* host memory */
  size_t buffer_nbytes[GPUFI_COMM_BUFFERS_MAX];
} gpufi_comm_reply;

/* From any thread, also after gpufi_comm_destroy. NULL is allowed. */
void gpufi_comm_reply_free(gpufi_comm_reply *reply);

/* --- Creation --------------------------------------------------------------- */

/* Where a tensor lies in an array that several servers hold together, a block each: the array's
 * shape, and the block's first index along each of its axes, which are the tensor's. */
typedef struct gpufi_comm_block {
  bool is_given;
  int64_t global_shape[GPUF_NDIM_MAX], start[GPUF_NDIM_MAX];
} gpufi_comm_block;

/* A tensor that a resolver found. `release` (may be NULL) is called once when the dispatcher needs
 * the tensor no more, on any thread. */
typedef struct gpufi_comm_source {
  gpuf_tensor tensor;
  gpufi_comm_block block; /* all 0 for what is no block */
  char framework[32];     /* NUL-terminated; "" = leave it out of replies */
  void (*release)(void *release_arg);
  void *release_arg;
} gpufi_comm_source;

typedef struct gpufi_comm_listing gpufi_comm_listing;

typedef struct gpufi_comm_options {
  /* Takes over `reply`, the answer to the message that was given with `tag`. Exactly one call for
   * each gpufi_comm_message and successful gpufi_comm_client_open, except that what waits when its
   * client is closed is dropped. Runs on the thread that did the work: in gpufi_comm_message,
   * gpufi_comm_run or gpufi_comm_step; it should only hand over. A reply that another thread was
   * making while the client was closed may still come: look `client` up. `reply` is NULL when there
   * is no memory even for an error: nothing to send. Required. */
  void (*reply)(void *arg, uint64_t client, uint64_t tag, gpufi_comm_reply *reply);
  /* Says something once for each kind of failure. May be NULL. */
  void (*log)(void *arg, const char *text);
  /* Find a tensor that is not in the registry by name, which is UTF-8, of 1 to
   * GPUFI_COMM_NAME_MAX_NBYTES bytes, without control characters. GPUF_ERR_INVALID: there is none
   * by that name; any other failure: there is, but it cannot be read, as the message says.
   * NULL = none. */
  gpuf_status (*resolve)(void *arg, const char *name, gpufi_comm_source *source, gpuf_error *err);
  /* Call gpufi_comm_listing_add for each tensor that `resolve` would find. NULL = none. */
  gpuf_status (*list)(void *arg, gpufi_comm_listing *listing, gpuf_error *err);
  void *arg; /* for the callbacks */

  const char *server_name; /* goes into the hello; copied; NULL = "gpufetch" */
  /* Live requests run inside gpufi_comm_message, on its thread; gpufi_comm_run has nothing to do.
   */
  bool run_in_message;
  bool no_steps; /* gpufi_comm_step will not be called: refuse what waits for it */
  bool no_share; /* refuse the operation share */

  /* Limits; 0 = the default, in parentheses. */
  int32_t client_max;         /* open clients (256) */
  int32_t waiting_max;        /* requests of a client that wait to be run or for a step (4) */
  int32_t tensor_max;         /* published tensors (4096) */
  int32_t value_max;          /* published values (256) */
  int32_t share_max;          /* shares of a client (64) */
  size_t reply_memory_nbytes; /* replies that are not freed yet (64 MiB; at least 8 MiB) */
  double step_share;          /* the most of the simulation's time that gpufi_comm_step may take
                                 to serve requests, as a fraction (0.05; at most 1) */
} gpufi_comm_options;

/* `options` is copied. */
gpuf_status gpufi_comm_create(const gpufi_comm_options *options, gpufi_comm **comm,
                              gpuf_error *err);

/* Close all clients, unpublish everything and free the dispatcher. Waits for importers of shares
 * for up to `timeout_ns`; GPUF_ERR_TIMEOUT says that some are left, whose tensors' release is
 * called when they are gone. NULL is allowed. */
gpuf_status gpufi_comm_destroy(gpufi_comm *comm, int64_t timeout_ns, gpuf_error *err);

/* --- The simulation's side ---------------------------------------------------- */

typedef struct gpufi_comm_publish_options {
  const char *framework; /* as in gpufi_comm_source; NULL = "" */
  /* As in gpufi_comm_block, a number an axis of the tensor's, copied; both NULL for no block. */
  const int64_t *global_shape, *start;
  /* Called once when the tensor is unpublished or replaced and nobody reads or imports it any
   * more, on any thread, with no lock held; not if publishing fails. NULL for none. */
  void (*release)(void *release_arg);
  void *release_arg;
} gpufi_comm_publish_options;

/* Offer a tensor (device or CPU memory) under a name; one that has it already is replaced, as if
 * it were unpublished without waiting. The memory must stay valid until gpufi_comm_unpublish
 * returns GPUF_OK or release is called. The same memory under the same name again, with another
 * stream or owner, costs a lock: shares of it go on, and the old owner's release is called. Live
 * reads read it at any time, on a stream of the dispatcher's own, with no regard to tensor->stream;
 * reads at a step come after the work that is pending on tensor->stream. `options` may be NULL. */
gpuf_status gpufi_comm_publish(gpufi_comm *comm, const char *name, const gpuf_tensor *tensor,
                               const gpufi_comm_publish_options *options, gpuf_error *err);

/* Take a tensor or value away: from now on its name is unknown, and shares of it are withdrawn.
 * Waits for reads that are under way and then for up to `timeout_ns` (< 0 = for ever) for
 * importers in other processes: GPUF_ERR_TIMEOUT while some are left; the name is gone all the
 * same. GPUF_ERR_INVALID for an unknown name. Must not be called from a callback. */
gpuf_status gpufi_comm_unpublish(gpufi_comm *comm, const char *name, int64_t timeout_ns,
                                 gpuf_error *err);

/* Offer a value beside the tensors; one of that name is replaced. Tensors and values have names of
 * their own. `text` is UTF-8 of at most GPUFI_COMM_TEXT_MAX_NBYTES and is copied. */
gpuf_status gpufi_comm_publish_int64(gpufi_comm *comm, const char *name, int64_t value,
                                     gpuf_error *err);
gpuf_status gpufi_comm_publish_float64(gpufi_comm *comm, const char *name, double value,
                                       gpuf_error *err);
gpuf_status gpufi_comm_publish_text(gpufi_comm *comm, const char *name, const char *text,
                                    gpuf_error *err);

/* A step is complete: its number and time go into replies from now on, and requests that wait for
 * a step are run on this thread before the call returns, as far as step_share allows; the rest
 * waits on. Without any, it costs a few atomic operations. One thread at a time. A request that
 * fails is answered with an error: this call itself cannot fail. */
void gpufi_comm_step(gpufi_comm *comm, int64_t step, double time);

/* --- The transport's side ------------------------------------------------------ */

/* A comm was opened, with `data` (JSON text, not NUL-terminated; may be empty). The reply, with
 * `tag`, is the hello. *client is an id that is never used again. On failure (too many clients:
 * GPUF_ERR_STATE; data that is no JSON object or asks for another protocol: GPUF_ERR_INVALID)
 * nothing is open; the error reply for the client is in *refusal, for the caller to send and
 * free before it closes the comm; it is NULL if there was no memory for it. */
gpuf_status gpufi_comm_client_open(gpufi_comm *comm, const char *data, size_t data_nbytes,
                                   uint64_t tag, uint64_t *client, gpufi_comm_reply **refusal,
                                   gpuf_error *err);

/* The comm is gone: drop what waits and withdraw its shares. An unknown id is ignored. */
void gpufi_comm_client_close(gpufi_comm *comm, uint64_t client);

/* A comm_msg of a client: `json` is its data, not NUL-terminated; `buffer_count` counts the binary
 * buffers that came with it (a request has none; they are not looked at). `tag` comes back with
 * the reply. Answers at once what needs no device, keeps the rest for gpufi_comm_run or
 * gpufi_comm_step. Whatever comes in is answered, with an error if need be; false for an unknown
 * client, which gets no answer. Replies that are errors count in reply_memory_nbytes but are never
 * held back: a transport reads no more messages while it cannot send. */
bool gpufi_comm_message(gpufi_comm *comm, uint64_t client, const char *json, size_t json_nbytes,
                        size_t buffer_count, uint64_t tag);

/* Run the live request that has waited longest. True if more wait that could be run
 * now; false also while replies that are not freed fill reply_memory_nbytes. */
bool gpufi_comm_run(gpufi_comm *comm);

/* For a `list` callback: add a tensor, or, with `tensor` NULL, the `problem` why one cannot be
 * read. False once the listing is full. */
bool gpufi_comm_listing_add(gpufi_comm_listing *listing, const char *name, const char *framework,
                            const gpuf_tensor *tensor, const char *problem);

typedef struct gpufi_comm_counts {
  int32_t client_count;
  int32_t waiting_count; /* requests that wait, live or for a step */
  int32_t tensor_count;
  int32_t share_count;
  size_t reply_nbytes;    /* replies that are not freed */
  uint64_t request_count; /* since creation */
  uint64_t error_count;   /* of those, answered with an error */
  uint64_t refused_count; /* clients that were not let in */
} gpufi_comm_counts;

void gpufi_comm_get_counts(gpufi_comm *comm, gpufi_comm_counts *counts);

#endif
