/* gpufetch: serving the tensors of a running program to notebooks that attach to it.
 *
 * The conventions are those of gpufetch.h. The functions are in libgpufetch_serve (pkg-config:
 * gpufetch-serve, CMake: gpufetch::serve).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef GPUFETCH_SERVE_H
#define GPUFETCH_SERVE_H

#include <gpufetch/gpufetch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A server makes a program look like a Jupyter kernel whose comm target `gpufetch` gives out the
 * tensors that the program publishes (docs/protocol.md). `gpufetch.connect(name)` in Python,
 * `gpufetch attach` and `jupyter console --existing kernel-NAME.json` find it by the connection
 * file that it writes. It runs no code that a client sends.
 *
 * Neither the program nor a client waits for the other: the server answers on threads of its own,
 * in which all signals are blocked. Reads are live: they see the memory as it is at that moment,
 * perhaps in the middle of a step. A client can ask instead for a read at the next
 * gpuf_server_publish_step, where the memory does not change.
 *
 * Who can attach: whoever can read the connection file, which is for the owner alone. Requests
 * without a valid signature by its key are dropped. By default the server listens on Unix sockets
 * that only the owner can open. Over tcp, replies travel to every subscriber, as with any Jupyter
 * kernel: take curve, which encrypts, on a machine that others use too (docs/serving.md).
 *
 * Memory: the options bound the replies that wait for clients. A client that does not read loses
 * its replies, and after some seconds its connection. */
typedef struct gpuf_server gpuf_server;

typedef struct gpuf_server_options {
  size_t struct_nbytes;
  const char *name; /* 1 to 48 of A-Z a-z 0-9 _ . -; numbered (NAME-2) while another living server
                       has it; NULL = the program's name */
  const char *connection_file; /* NULL = kernel-NAME.json in Jupyter's runtime folder. The
                                  addresses, ports, key and curve keys of a file that is there are
                                  used, as those that a kernel manager has chosen; anything but a
                                  whole connection file is refused, and never replaced */
  const char *transport;       /* "ipc", "tcp", or NULL: tcp if ip, first_port or curve is set */
  const char *ip;              /* tcp: IPv4 address to listen on, or the name of a network
                                  interface; NULL = 127.0.0.1. ipc: ignored */
  int32_t first_port;          /* tcp: five ports from here on; 0 = any that are free; ipc: 0 */
  bool curve;                  /* encrypt with CurveZMQ, by keys made for this server; over tcp */
  bool jupyterlab; /* link the connection file into the folder external_kernels beside it, which
                      JupyterLab lists with --ServerApp.allow_external_kernels=True */
  size_t reply_max_nbytes; /* the most data under way to clients, in all, from 16 MiB up; 0 = 256
                              MiB */
  int32_t comms_max;       /* the most attached clients, up to 65536; for one more, the longest
                              unused is closed; 0 = 1024 */
  int32_t connections_max; /* the most connections to its sockets, of which a client has up to
                              five, up to 65536; others are closed as they come. 0 = a quarter
                              of RLIMIT_NOFILE. The last eighth of the process's descriptors is left
                              to the program in any case */
  double step_share; /* the most of the program's time that gpuf_server_publish_step may take for
                        clients, as a fraction up to 1; 0 = 0.05 */
  /* Called once, when a client asks the program to end, on a thread of the server, where
   * gpuf_server_stop is refused: let it set a flag that the program looks at. NULL: a shutdown
   * request only detaches its client.
   *
   * A program that a kernel manager has started (connection_file is given, and JPY_PARENT_PID in
   * the environment is a process that it descends from) is called for a restart too, and when the
   * manager ends; with NULL, the manager's end is the program's, by SIGTERM. A program that is to
   * outlive its manager ignores the call, or unsets JPY_PARENT_PID before it starts the server. */
  void (*shutdown)(void *shutdown_arg);
  void *shutdown_arg;
  /* Called with a line, without a newline, about what was refused (the first time of each kind) or
   * went wrong, and where the server listens on other addresses than this host's own without
   * CurveZMQ. The caller is a thread of the server, the one in gpuf_server_start or, about requests
   * at a step, the one in gpuf_server_publish_step; two may call at once. It must not take a lock
   * that the program holds around a call of this library. NULL for none. */
  void (*log)(void *log_arg, const char *line);
  void *log_arg;
} gpuf_server_options;

/* clang-format off */
#define GPUF_SERVER_OPTIONS_INIT \
  {sizeof(gpuf_server_options), NULL, NULL, NULL, NULL, 0, false, false, 0, 0, 0, 0, NULL, NULL, \
   NULL, NULL}
/* clang-format on */

/* Start serving; writes the connection file. `options` may be NULL. Fails with
 *   GPUF_ERR_INVALID      an option is out of range
 *   GPUF_ERR_IO           a port is in use, the runtime folder cannot be written, or 40 descriptors
 *                         are not free
 *   GPUF_ERR_NO_MEMORY    there is no memory, or are no threads; the message names the limit
 *   GPUF_ERR_STATE        a living server has the connection file, another user may have written
 *                         it, or this process was forked from one that had started a server
 *   GPUF_ERR_UNSUPPORTED  built without libzmq, jansson or libcrypto */
GPUF_API gpuf_status gpuf_server_start(const gpuf_server_options *options, gpuf_server **server,
                                       gpuf_error *err);

/* Close the comms, stop, remove the connection file and free the server. Waits for the read that is
 * under way, for up to 1 second for replies to reach clients, and for up to 5 seconds for other
 * processes that have attached to published memory: GPUF_ERR_TIMEOUT says that some are left, and
 * the server is freed all the same. So it takes at most about 6 seconds beside that read, and the
 * program's own callbacks (release, log), which it waits for without a limit. NULL is allowed.
 * A server that still runs when the program exits loses its connection file only. A forked child
 * has no server: GPUF_ERR_STATE, and nothing is freed. The same where a callback of this server
 * (shutdown, log, release) calls it, on whichever thread: the server goes on. */
GPUF_API gpuf_status gpuf_server_stop(gpuf_server *server, gpuf_error *err);

/* Every call below refuses NULL for the server (the two getters give NULL), and in a forked child
 * fails with GPUF_ERR_STATE. */

/* Path of the connection file; lives as long as the server. */
GPUF_API const char *gpuf_server_connection_file(const gpuf_server *server);
/* The name, numbered where the wanted one was taken; lives as long as the server. */
GPUF_API const char *gpuf_server_name(const gpuf_server *server);

#define GPUF_PUBLISH_TENSORS_MAX 4096 /* of a server at a time */
#define GPUF_PUBLISH_NAME_MAX_NBYTES 200
#define GPUF_PUBLISH_TEXT_MAX_NBYTES 4096

typedef struct gpuf_publish_options {
  size_t struct_nbytes;
  /* Called once when the tensor is withdrawn or replaced and nobody reads it any more, on any
   * thread, with no lock held; not if publishing fails. NULL for none. A client's read of more than
   * 4 MiB by messages goes on in a tensor that was replaced, and so do its requests for one result
   * of several servers; where they stop on the way, as when the client was killed, it is kept for
   * 10 s, and until the next read or publication after that. */
  void (*release)(void *release_arg);
  void *release_arg;
  /* For a program of several ranks that each serve their own part of an array: the array's shape,
   * and the part's first index along each axis, as many numbers as the tensor has axes. Then
   * `gpufetch.connect([...])` shows one array. Parts must not overlap: leave ghost elements out of
   * `tensor` by its pointer, shape and strides. Copied. Both NULL if `tensor` is the whole array.
   */
  const int64_t *global_shape;
  const int64_t *start;
  /* Where gpuf_attach gave the tensor's memory (gpufetch/share.h), its attachment, which must live
   * as long as the tensor; NULL for other memory. Reads fail once the exporting process has ended.
   */
  struct gpuf_attachment *attachment;
} gpuf_publish_options;

#define GPUF_PUBLISH_OPTIONS_INIT {sizeof(gpuf_publish_options), NULL, NULL, NULL, NULL, NULL}

/* Offer `tensor` (a device's or the CPU's, any layout) to clients under `name`: 1 to 200 bytes of
 * UTF-8 without control characters. A tensor that has the name is replaced, so a program that swaps
 * two buffers publishes the current one every step. Publishing the same memory again under its name
 * only changes its stream and owner: the old release is called at once. Copies the descriptor and
 * takes a lock, no more. tensor->stream is the one that the program works on: step-consistent reads
 * come after the work that is on it then, and fail where it is GPUF_STREAM_PER_THREAD and another
 * thread publishes the step; live reads leave it alone. The memory must stay allocated
 * until gpuf_server_unpublish of the name, or gpuf_server_stop, has returned GPUF_OK, or release
 * was called. `options` may be NULL. GPUF_ERR_STATE for one more than GPUF_PUBLISH_TENSORS_MAX
 * names, and, in this and the calls below that publish, once gpuf_server_stop has begun, as where
 * what it releases publishes anew. */
GPUF_API gpuf_status gpuf_server_publish(gpuf_server *server, const char *name,
                                         const gpuf_tensor *tensor,
                                         const gpuf_publish_options *options, gpuf_error *err);

/* Offer a value beside the tensors: a parameter, an energy, the file that was written last. One
 * that has the name is replaced; tensors and values have names of their own. `text` is UTF-8 of at
 * most 4096 bytes. At most 256 values. */
GPUF_API gpuf_status gpuf_server_publish_int64(gpuf_server *server, const char *name, int64_t value,
                                               gpuf_error *err);
GPUF_API gpuf_status gpuf_server_publish_float64(gpuf_server *server, const char *name,
                                                 double value, gpuf_error *err);
GPUF_API gpuf_status gpuf_server_publish_text(gpuf_server *server, const char *name,
                                              const char *text, gpuf_error *err);

/* Withdraw a tensor or value: its name is unknown from now on. Waits for reads that are under way,
 * and then for up to `timeout_ns` (< 0 = for ever) for other processes that have attached to the
 * tensor's memory: GPUF_ERR_TIMEOUT while some are left. Call it again then, to wait further or to
 * look whether they have let go: it returns GPUF_OK once, and only then the memory may be freed (or
 * after `release`, for a program that prefers to be told). GPUF_ERR_INVALID for an unknown name,
 * such as one of which a call has returned GPUF_OK. A tensor that was published by the name
 * meanwhile is withdrawn, too. */
GPUF_API gpuf_status gpuf_server_unpublish(gpuf_server *server, const char *name,
                                           int64_t timeout_ns, gpuf_error *err);

/* Say that time step `step` is done, at simulated time `time`; the work that makes it up is on the
 * published tensors' streams. When nobody asked, it costs a few atomic operations. Reads that wait
 * for a step are done on this thread, after that work, before the call returns, as far as
 * step_share allows; the rest wait on. One thread at a time serves reads: steps that others
 * complete meanwhile leave them to it.
 *
 * Each call is a new step, whatever its number: numbers may repeat and may fall, as where a program
 * goes back to a checkpoint. Clients see the number that was given last, and compare those of
 * several servers only with each other. */
GPUF_API gpuf_status gpuf_server_publish_step(gpuf_server *server, int64_t step, double time,
                                              gpuf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_SERVE_H */
