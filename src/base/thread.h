/* Threads: which one it is, starting one of the library's own, and what signals may not interrupt.
 */
#ifndef GPUFI_BASE_THREAD_H
#define GPUFI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

/* A number of the calling thread, from 1 on, that no other thread of the process has or had. */
uint64_t gpufi_thread_number(void);

/* As pthread_create, for a thread named `name` (at most 15 characters). All signals are blocked in
 * it, because the program's handlers must not run there, except those that report a fault of the
 * thread itself, such as SIGSEGV: a crash handler sees these. Its floating-point environment is the
 * default one, whatever the caller's is. A `stack_nbytes` of 0 is the system's default. Returns 0
 * or an errno value. Thread-safety: any thread. */
int gpufi_thread_start(pthread_t *thread, const char *name, size_t stack_nbytes,
                       void *(*main)(void *arg), void *arg);

/* Block all signals in the calling thread but those that report a fault of its own, for calls that
 * take no time and that a signal would make fail. pthread_sigmask(SIG_SETMASK, previous, NULL) ends
 * it. */
void gpufi_signals_block(sigset_t *previous);

#endif
