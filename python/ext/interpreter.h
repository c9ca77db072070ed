/* Python references and calls on threads of the library's own, and what threads do when the
 * interpreter ends.
 *
 * A thread that wants the GIL of an interpreter that ends never returns: up to Python 3.13 it is
 * ended on the spot, from 3.14 on it sleeps. So it must hold nothing then that the ending thread
 * waits for, and what it leaves behind is leaked on purpose: the process is about to end.
 * Thread-safety: any thread, with or without the GIL unless it is said otherwise. */
#ifndef GPUFI_PY_INTERPRETER_H
#define GPUFI_PY_INTERPRETER_H

#include "api.h"

/* Called once, when the module is made. */
void gpufi_py_interpreter_init(void);
/* The interpreter is about to end: wait for threads that are between gpufi_py_enter and _leave, for
 * a limited time, and let no more in. Called with the GIL, which is released meanwhile. */
void gpufi_py_interpreter_stop(void);

/* Before a thread takes the GIL for a while; false once the interpreter ends, and the GIL must not
 * be taken then. */
bool gpufi_py_enter(void);
void gpufi_py_leave(void);

/* As PyEval_RestoreThread, for a thread whose stack workers still use: where the interpreter would
 * end the thread, it sleeps until the process ends. */
void gpufi_py_restore_thread(PyThreadState *thread);

/* Call `callable` with a line of text, or (NULL) with nothing. What it raises goes to
 * sys.unraisablehook. Does nothing once the interpreter ends. */
void gpufi_py_call_from_thread(PyObject *callable, const char *line);
/* The last user of a tensor's memory is gone: drop the reference to its owner. Does nothing once
 * the interpreter ends. */
void gpufi_py_release_owner(void *owner);

#endif
