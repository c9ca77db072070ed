/* The handle of a Python program's server: a capsule. It knows how many calls use the server, so
 * that stopping waits for them, without a lock that is held while any of them runs: a tensor that
 * is let go, a handler of logging or a callback may run Python code in each of them, which may wait
 * for another thread that uses the server, too.
 *
 * The functions that say so are called without the GIL, and run no Python code; the others with it.
 * In a forked child, none of them takes a lock, which another thread of the parent may have held.
 */
#ifndef GPUFI_PY_SERVER_HANDLE_H
#define GPUFI_PY_SERVER_HANDLE_H

#include "api.h"

#include <gpufetch/serve.h>

typedef struct gpufi_py_server gpufi_py_server;

typedef enum gpufi_py_server_state {
  SERVER_NEW,
  SERVER_STARTING,
  SERVER_RUNS,
  SERVER_STOPPING,
  SERVER_ENDED, /* stopped, or not started well */
} gpufi_py_server_state;

/* A new capsule of a server that is not started yet. `log` (called with a line) and `shutdown` are
 * callables or None. A server that still runs when the capsule goes is stopped. */
PyObject *gpufi_py_server_create(PyObject *module, PyObject *log, PyObject *shutdown);

/* A converter for PyArg_ParseTuple: the gpufi_py_server * of a capsule. */
int gpufi_py_server_of(PyObject *capsule, void *server);

/* The state; SERVER_ENDED in a forked child. */
gpufi_py_server_state gpufi_py_server_get_state(gpufi_py_server *server);
/* Whether the calling thread is one of the server's own, or inside a call of it. */
bool gpufi_py_server_is_inside(const gpufi_py_server *server);
/* The name and the path of the connection file; "" before the server runs. */
void gpufi_py_server_describe(gpufi_py_server *server, const char **name, const char **path);

/* From the GIL's holder, before gpufi_py_server_start: others that want to start a server by the
 * same name wait from now on. */
void gpufi_py_server_claim(gpufi_py_server *server);
/* Without the GIL: start the server. The log's lines are kept meanwhile, and logged by
 * gpufi_py_server_log_kept. */
gpuf_status gpufi_py_server_start(gpufi_py_server *server, gpuf_server_options *options,
                                  gpuf_error *err);
void gpufi_py_server_log_kept(gpufi_py_server *server); /* without the GIL; takes it */
/* Without the GIL: wait until a server that starts runs or has failed to start. */
void gpufi_py_server_await_start(gpufi_py_server *server);

/* Without the GIL: the server for a call, which it outlives: end the use with gpufi_py_server_end.
 * NULL, and `err` filled, where it does not run, or in a forked child. */
gpuf_server *gpufi_py_server_begin(gpufi_py_server *server, gpuf_error *err);
void gpufi_py_server_end(gpufi_py_server *server);

/* Without the GIL: wait for the calls that are under way, and stop the server. Where another thread
 * is stopping it, wait for that; GPUF_OK where it does not run any more. GPUF_ERR_STATE inside of
 * the server, which goes on, and in a forked child. */
gpuf_status gpufi_py_server_stop(gpufi_py_server *server, gpuf_error *err);

#endif
