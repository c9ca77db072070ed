/* References that the library holds and gives back on threads of its own, and calls from these. */
#ifndef GPUFI_PY_INTERPRETER_H
#define GPUFI_PY_INTERPRETER_H

#include "api.h"

/* The interpreter is about to end: from now on no Python object is touched from other threads. */
void gpufi_py_interpreter_stop(void);
/* True after gpufi_py_interpreter_stop. Needs no GIL. */
bool gpufi_py_is_stopped(void);
/* Call `callable` with a line of text, or (NULL) with nothing, from any thread, with or without the
 * GIL. What it raises goes to sys.unraisablehook. Does nothing once the interpreter ends. */
void gpufi_py_call_from_thread(PyObject *callable, const char *line);
/* The last user of a tensor's memory is gone: drop the reference to its owner. Runs on any thread,
 * with or without the GIL; does nothing once the interpreter ends. */
void gpufi_py_release_owner(void *owner);

#endif
