/* The dispatcher of the comm protocol (docs/protocol.md): a registry of named tensors and values,
 * and the answers to what clients ask about them. It knows no transport: requests come in by
 * gpufi_dispatcher_message, replies go out by a callback.
 *
 * Its modules, each of which uses only those above it:
 *
 *   protocol, failure, json, name    limits, error codes, JSON values, names
 *   object                           untrusted JSON, member by member
 *   request, member, parse           a request, and its checks: where untrusted input is parsed
 *   budget, reply, draft             replies, and the memory that they may take
 *   steps, source, registry, holds,  what can be asked for
 *   values
 *   listing, clients, shares, select  the listing, who asks, shared memory, slices and fragments
 *   queue                            requests that wait
 *   state                            what makes up a dispatcher
 *   operation                        the operations
 *   deliver, run                     handing replies over; running requests
 *   message, publish, client         the calls of the transport and of the program
 *   dispatcher                       creation and destruction
 *
 * Everything a client sends is untrusted. Memory is bounded by the options: requests that wait,
 * clients, and replies that the transport has not freed yet.
 *
 * Thread-safety: every function may be called from any thread at any time, except that
 * gpufi_dispatcher_destroy must be the last call. No lock is held while a callback runs.
 *
 * In a build without jansson, gpufi_dispatcher_create fails with GPUF_ERR_UNSUPPORTED. */
#ifndef GPUFI_COMM_DISPATCHER_H
#define GPUFI_COMM_DISPATCHER_H

#include "comm/listing.h"
#include "comm/reply.h"
#include "comm/source.h"

typedef struct gpufi_dispatcher gpufi_dispatcher;

/* --- Creation ------------------------------------------------------------------ */

typedef struct gpufi_dispatcher_options {
  /* Takes over `reply`, the answer to the message that was given with `tag`. Called exactly once
   * for each gpufi_dispatcher_message and successful gpufi_client_open, except that requests that
   * wait when their client is closed are dropped. Runs on the thread that did the work: in
   * gpufi_dispatcher_message, _run or _step; it should only hand over. A reply that another thread
   * was making while the client was closed may still come: look `client` up. `reply` is NULL when
   * there is no memory even for an error: nothing to send. Required. */
  void (*reply)(void *arg, uint64_t client, uint64_t tag, gpufi_reply *reply);
  /* Reports a failure, once for each code. May be NULL. */
  void (*log)(void *arg, const char *text);
  /* Finds a tensor that is not published by its name, which is valid. GPUF_ERR_INVALID: there is
   * none by that name; any other failure: there is, but it cannot be read, as the message says.
   * NULL = none. */
  gpuf_status (*resolve)(void *arg, const char *name, gpufi_source *source, gpuf_error *err);
  /* Calls gpufi_listing_add for each tensor that `resolve` would find. NULL = none. */
  gpufi_lister *list;
  void *arg; /* for the callbacks */

  const char *server_name; /* goes into the hello; copied; NULL = "gpufetch" */
  /* Live requests run inside gpufi_dispatcher_message, on its thread; gpufi_dispatcher_run has
   * nothing to do. */
  bool run_in_message;
  bool no_steps; /* gpufi_dispatcher_step will not be called: refuse requests for a step */
  bool no_share; /* refuse the operation share */

  /* Limits; 0 = the default, in parentheses. */
  int32_t client_max;         /* open clients (256) */
  int32_t waiting_max;        /* requests of a client that wait to be run or for a step (4) */
  int32_t tensor_max;         /* published tensors (4096) */
  int32_t value_max;          /* published values (256) */
  int32_t share_max;          /* shares of a client (64) */
  int32_t held_max;           /* replaced tensors that are held for requests; for one more, the one
                                 that was not used for longest is let go of (64) */
  int64_t hold_ns;            /* replaced memory that is held for requests, such as those of a read
                                 in fragments, is let go of where none comes for that time, at the
                                 next read or publication (10 s) */
  size_t reply_memory_nbytes; /* replies that are not freed yet (64 MiB; at least 8 MiB) */
  double step_share;          /* the most of the program's time that gpufi_dispatcher_step may take
                                 to serve requests, as a fraction (0.05; at most 1) */
} gpufi_dispatcher_options;

/* `options` is copied. */
gpuf_status gpufi_dispatcher_create(const gpufi_dispatcher_options *options,
                                    gpufi_dispatcher **dispatcher, gpuf_error *err);

/* Close all clients, unpublish everything and free the dispatcher. Waits for importers of shares
 * for up to `timeout_ns`; GPUF_ERR_TIMEOUT says that some are left, whose tensors' release is
 * called when they are gone. NULL is allowed. */
gpuf_status gpufi_dispatcher_destroy(gpufi_dispatcher *dispatcher, int64_t timeout_ns,
                                     gpuf_error *err);

/* --- The program's side -------------------------------------------------------- */

/* Offer a tensor (device or CPU memory) under a name; one that has it already is replaced, as if
 * it were unpublished without waiting. The memory must stay valid until gpufi_dispatcher_unpublish
 * returns GPUF_OK or release is called. The same memory under the same name again, with another
 * stream or owner, costs a lock: shares of it go on, and the old owner's release is called. Live
 * reads read it at any time, on a stream of the library's own, with no regard to tensor->stream;
 * reads at a step come after the work that is pending on tensor->stream. `options` may be NULL. */
gpuf_status gpufi_dispatcher_publish(gpufi_dispatcher *dispatcher, const char *name,
                                     const gpuf_tensor *tensor, const gpuf_publish_options *options,
                                     gpuf_error *err);

/* Withdraw a tensor or value: from now on its name is unknown, and shares of it are withdrawn.
 * Waits for reads that are under way and then for up to `timeout_ns` (< 0 = for ever) for
 * importers in other processes: GPUF_ERR_TIMEOUT while some are left; the name is gone all the
 * same, and is known to this call until it has returned GPUF_OK, which it does once they have gone.
 * GPUF_ERR_INVALID for an unknown name. Must not be called from a callback. */
gpuf_status gpufi_dispatcher_unpublish(gpufi_dispatcher *dispatcher, const char *name,
                                       int64_t timeout_ns, gpuf_error *err);
/* Wait further, as gpufi_dispatcher_unpublish does after GPUF_ERR_TIMEOUT, without withdrawing
 * anything: GPUF_ERR_STATE where the name was published again. */
gpuf_status gpufi_dispatcher_await_unpublished(gpufi_dispatcher *dispatcher, const char *name,
                                               int64_t timeout_ns, gpuf_error *err);

/* End the shares of tensors that `resolve` found before and finds no more, or finds elsewhere in
 * memory: a share holds the tensor's memory, which its owner cannot free otherwise. For the program
 * to call when its variables may have changed. */
void gpufi_dispatcher_end_stale_shares(gpufi_dispatcher *dispatcher);

/* Offer a value beside the tensors; one of that name is replaced. Tensors and values have names of
 * their own. `text` is UTF-8 of at most GPUFI_TEXT_MAX_NBYTES and is copied. */
gpuf_status gpufi_dispatcher_publish_int64(gpufi_dispatcher *dispatcher, const char *name,
                                           int64_t value, gpuf_error *err);
gpuf_status gpufi_dispatcher_publish_float64(gpufi_dispatcher *dispatcher, const char *name,
                                             double value, gpuf_error *err);
gpuf_status gpufi_dispatcher_publish_text(gpufi_dispatcher *dispatcher, const char *name,
                                          const char *text, gpuf_error *err);

/* A step is complete: its number and time go into replies from now on, and requests that wait for
 * a step are run on this thread before the call returns, as far as step_share allows; the others
 * go on waiting. When none waits, it costs a few atomic operations. One thread at a time. A request
 * that fails is answered with an error: this call itself cannot fail. */
void gpufi_dispatcher_step(gpufi_dispatcher *dispatcher, int64_t step, double time);

/* --- The transport's side ------------------------------------------------------ */

/* A comm was opened, with `data` (JSON text, not NUL-terminated; may be empty), which makes a
 * client. The reply, with `tag`, is the hello. *client is an id that is never used again. On
 * failure (too many clients: GPUF_ERR_STATE; data that is no JSON object or asks for another
 * protocol: GPUF_ERR_INVALID) there is no client; the error reply is in *refusal, for the caller to
 * send and free before it closes the comm; it is NULL if there was no memory for it. */
gpuf_status gpufi_client_open(gpufi_dispatcher *dispatcher, const char *data, size_t data_nbytes,
                              uint64_t tag, uint64_t *client, gpufi_reply **refusal,
                              gpuf_error *err);

/* Count a client's requests as those of `owner`, the id of the first client that the same program
 * opened: owners take turns, however many requests and clients each has. Every client is its own
 * owner at first. False for an unknown client. */
bool gpufi_client_set_owner(gpufi_dispatcher *dispatcher, uint64_t client, uint64_t owner);

/* The comm is closed: drop the client's requests that wait and withdraw its shares. An unknown id
 * is ignored. */
void gpufi_client_close(gpufi_dispatcher *dispatcher, uint64_t client);

/* A comm_msg of a client: `data` is JSON text, not NUL-terminated; `buffer_count` counts the binary
 * buffers that came with it (a request has none; they are not looked at). `tag` comes back with
 * the reply. Answers errors and `cancel` at once, keeps the rest for gpufi_dispatcher_run or
 * gpufi_dispatcher_step. Every message is answered, with an error if need be; false for an unknown
 * client, which gets no answer. Replies that are errors count in reply_memory_nbytes but are never
 * held back: a transport reads no more messages while it cannot send. */
bool gpufi_dispatcher_message(gpufi_dispatcher *dispatcher, uint64_t client, const char *data,
                              size_t data_nbytes, size_t buffer_count, uint64_t tag);
/* A comm_msg whose envelope the transport could not read as a whole: answer it by an error that
 * says the `problem`, with op and id of such `data` as there is. */
bool gpufi_dispatcher_refuse(gpufi_dispatcher *dispatcher, uint64_t client, const char *data,
                             size_t data_nbytes, const char *problem, uint64_t tag);

/* Run the live request whose turn it is: owners take turns, and each one's requests are run in the
 * order in which they came. True if more wait that could be run
 * now; false also while replies that are not freed fill reply_memory_nbytes. */
bool gpufi_dispatcher_run(gpufi_dispatcher *dispatcher);

/* Whether a request that is live, or whose step has come, waits for replies to be freed that fill
 * reply_memory_nbytes. */
bool gpufi_dispatcher_is_short(gpufi_dispatcher *dispatcher);

typedef struct gpufi_dispatcher_counts {
  int32_t client_count;
  int32_t waiting_count; /* requests that wait, live or for a step */
  int32_t tensor_count;
  int32_t share_count;
  size_t reply_nbytes;    /* replies that are not freed */
  uint64_t request_count; /* since creation */
  uint64_t error_count;   /* of those, answered with an error */
  uint64_t refused_count; /* clients that were not let in */
} gpufi_dispatcher_counts;

void gpufi_dispatcher_get_counts(gpufi_dispatcher *dispatcher, gpufi_dispatcher_counts *counts);

#endif
