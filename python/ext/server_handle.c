#include "server_handle.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/thread.h"
#include "interpreter.h"
#include "server/inside.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char capsule_name[] = "gpufetch.server";

/* A line that was logged while the server started. */
typedef struct kept_line {
  struct kept_line *next;
  char text[];
} kept_line;

struct gpufi_py_server {
  gpuf_server *server; /* set before the state says that it runs; to be used by calls that began */
  int64_t process_id;  /* that has made it */
  PyObject *module;    /* keeps what the callbacks need */
  PyObject *log, *shutdown; /* callables, or NULL */
  char *name, *path;        /* set before the state says that it runs, or NULL */

  /* The lock is never held while Python code runs, or anything that waits for the GIL. */
  pthread_mutex_t lock;
  pthread_cond_t changed; /* the state, or use_count came to 0 */
  atomic_int state;       /* a gpufi_py_server_state; changed under the lock */
  int use_count;          /* calls that use the server */
  kept_line *kept;        /* last one first */
};

/* --- Callbacks, on threads of the server or in a call of it ------------------------------------
 */

/* True if the line was kept for later, or there is no memory for it. */
static bool keep_line(gpufi_py_server *held, const char *text) {
  const size_t nbytes = strlen(text) + 1;
  pthread_mutex_lock(&held->lock);
  const bool starting = atomic_load(&held->state) == SERVER_STARTING;
  kept_line *line = starting ? malloc(sizeof(*line) + nbytes) : NULL;
  if (line) {
    memcpy(line->text, text, nbytes);
    line->next = held->kept;
    held->kept = line;
  }
  pthread_mutex_unlock(&held->lock);
  return starting;
}

static void call_log(void *arg, const char *text) {
  gpufi_py_server *held = arg;
  if (!keep_line(held, text)) {
    gpufi_py_call_from_thread(held->log, text);
  }
}

static void call_shutdown(void *arg) {
  gpufi_py_call_from_thread(((gpufi_py_server *)arg)->shutdown, NULL);
}

/* Take the lines that were kept, the first one first. */
static kept_line *take_kept(gpufi_py_server *held) {
  kept_line *first = NULL;
  pthread_mutex_lock(&held->lock);
  while (held->kept) {
    kept_line *line = held->kept;
    held->kept = line->next;
    line->next = first;
    first = line;
  }
  pthread_mutex_unlock(&held->lock);
  return first;
}

/* What the log's handlers call is inside of the server, as where its own threads log. */
void gpufi_py_server_log_kept(gpufi_py_server *held) {
  gpufi_inside inside;
  gpufi_inside_enter(&inside, held->server);
  for (kept_line *line = take_kept(held); line;) {
    kept_line *next = line->next;
    gpufi_py_call_from_thread(held->log, line->text);
    free(line);
    line = next;
  }
  gpufi_inside_leave(&inside);
}

/* --- Creation ----------------------------------------------------------------------------------
 */

static void free_held(gpufi_py_server *held) {
  Py_XDECREF(held->module);
  Py_XDECREF(held->log);
  Py_XDECREF(held->shutdown);
  free(held->name);
  free(held->path);
  pthread_cond_destroy(&held->changed);
  pthread_mutex_destroy(&held->lock);
  free(held);
}

/* The body of a thread that stops a server. After the end of the interpreter the callables stay. */
static void *end_server(void *arg) {
  gpufi_py_server *held = arg;
  gpuf_server_stop(held->server, NULL);
  if (gpufi_py_enter()) {
    const PyGILState_STATE gil = PyGILState_Ensure();
    free_held(held);
    PyGILState_Release(gil);
    gpufi_py_leave();
  }
  return NULL;
}

/* Nobody else uses the handle. The last reference may go in a callback of the server's, which
 * cannot stop it: another thread does then. Where there is none to be had, the server runs on. */
static void destroy(PyObject *capsule) {
  gpufi_py_server *held = PyCapsule_GetPointer(capsule, capsule_name);
  const bool is_own = gpufi_check_process(held->process_id, NULL) == GPUF_OK;
  const bool runs = is_own && atomic_load(&held->state) == SERVER_RUNS;
  if (runs && gpufi_py_server_is_inside(held)) {
    pthread_t thread;
    if (gpufi_thread_start(&thread, "gpufetch-stop", 0, end_server, held) == 0) {
      pthread_detach(thread);
    }
    return;
  }
  if (runs) {
    Py_BEGIN_ALLOW_THREADS
      gpuf_server_stop(held->server, NULL);
    Py_END_ALLOW_THREADS
  }
  if (is_own) { /* in a child, the locks may not be destroyed, and little is lost */
    free_held(held);
  }
}

PyObject *gpufi_py_server_create(PyObject *module, PyObject *log, PyObject *shutdown) {
  gpufi_py_server *held = calloc(1, sizeof(*held));
  if (!held) {
    return PyErr_NoMemory();
  }
  PyObject *capsule = PyCapsule_New(held, capsule_name, destroy);
  if (!capsule) {
    free(held);
    return NULL;
  }
  held->process_id = getpid();
  held->module = Py_NewRef(module);
  held->log = log == Py_None ? NULL : Py_NewRef(log);
  held->shutdown = shutdown == Py_None ? NULL : Py_NewRef(shutdown);
  pthread_mutex_init(&held->lock, NULL);
  pthread_cond_init(&held->changed, NULL);
  return capsule;
}

int gpufi_py_server_of(PyObject *capsule, void *server) {
  gpufi_py_server *held = PyCapsule_GetPointer(capsule, capsule_name);
  *(gpufi_py_server **)server = held;
  return held != NULL;
}

/* --- State -------------------------------------------------------------------------------------
 */

gpufi_py_server_state gpufi_py_server_get_state(gpufi_py_server *held) {
  return gpufi_check_process(held->process_id, NULL) == GPUF_OK
             ? (gpufi_py_server_state)atomic_load(&held->state)
             : SERVER_ENDED;
}

bool gpufi_py_server_is_inside(const gpufi_py_server *held) {
  return held->server && gpufi_inside_of(held->server);
}

void gpufi_py_server_describe(gpufi_py_server *held, const char **name, const char **path) {
  const bool is_known = atomic_load(&held->state) >= SERVER_RUNS;
  *name = is_known && held->name ? held->name : "";
  *path = is_known && held->path ? held->path : "";
}

static void set_state(gpufi_py_server *held, gpufi_py_server_state state) {
  pthread_mutex_lock(&held->lock);
  atomic_store(&held->state, state);
  pthread_cond_broadcast(&held->changed);
  pthread_mutex_unlock(&held->lock);
}

void gpufi_py_server_claim(gpufi_py_server *held) {
  set_state(held, SERVER_STARTING);
}

static gpuf_status note_names(gpufi_py_server *held, gpuf_error *err) {
  held->name = strdup(gpuf_server_name(held->server));
  held->path = strdup(gpuf_server_connection_file(held->server));
  if (held->name && held->path) {
    return GPUF_OK;
  }
  gpuf_server_stop(held->server, NULL);
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for the name of a server");
}

gpuf_status gpufi_py_server_start(gpufi_py_server *held, gpuf_server_options *options,
                                  gpuf_error *err) {
  options->log = held->log ? call_log : NULL;
  options->shutdown = held->shutdown ? call_shutdown : NULL;
  options->log_arg = options->shutdown_arg = held;
  gpuf_status status = gpuf_server_start(options, &held->server, err);
  if (status == GPUF_OK) {
    status = note_names(held, err);
  }
  set_state(held, status == GPUF_OK ? SERVER_RUNS : SERVER_ENDED);
  return status;
}

void gpufi_py_server_await_start(gpufi_py_server *held) {
  pthread_mutex_lock(&held->lock);
  while (atomic_load(&held->state) == SERVER_STARTING) {
    pthread_cond_wait(&held->changed, &held->lock);
  }
  pthread_mutex_unlock(&held->lock);
}

/* --- Uses --------------------------------------------------------------------------------------
 */

gpuf_server *gpufi_py_server_begin(gpufi_py_server *held, gpuf_error *err) {
  if (gpufi_check_process(held->process_id, err) != GPUF_OK) {
    return NULL;
  }
  pthread_mutex_lock(&held->lock);
  const bool runs = atomic_load(&held->state) == SERVER_RUNS;
  held->use_count += runs;
  pthread_mutex_unlock(&held->lock);
  if (!runs) {
    gpufi_fail(err, GPUF_ERR_STATE, 0, "this server is stopped: serve() starts another");
  }
  return runs ? held->server : NULL;
}

void gpufi_py_server_end(gpufi_py_server *held) {
  pthread_mutex_lock(&held->lock);
  if (--held->use_count == 0) {
    pthread_cond_broadcast(&held->changed);
  }
  pthread_mutex_unlock(&held->lock);
}

/* True if this thread is to stop the server, which no call uses any more; false once it has ended.
 */
static bool begin_stop(gpufi_py_server *held) {
  pthread_mutex_lock(&held->lock);
  const bool is_first = atomic_load(&held->state) == SERVER_RUNS;
  if (is_first) {
    atomic_store(&held->state, SERVER_STOPPING);
  }
  while (is_first ? held->use_count > 0 : atomic_load(&held->state) == SERVER_STOPPING) {
    pthread_cond_wait(&held->changed, &held->lock);
  }
  pthread_mutex_unlock(&held->lock);
  return is_first;
}

gpuf_status gpufi_py_server_stop(gpufi_py_server *held, gpuf_error *err) {
  gpuf_status status = gpufi_check_process(held->process_id, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (gpufi_py_server_is_inside(held)) {
    return atomic_load(&held->state) == SERVER_RUNS
               ? gpuf_server_stop(held->server, err) /* which refuses, and says why */
               : GPUF_OK;
  }
  if (begin_stop(held)) {
    status = gpuf_server_stop(held->server, err);
    set_state(held, SERVER_ENDED);
  }
  return status;
}
