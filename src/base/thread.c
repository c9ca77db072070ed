#include "base/thread.h"

#include <stdatomic.h>

#include "base/floating_point.h"

uint64_t gpufi_thread_number(void) {
  static atomic_uint_least64_t last;
  static _Thread_local uint64_t number;
  if (number == 0) {
    number = atomic_fetch_add(&last, 1) + 1;
  }
  return number;
}

void gpufi_signals_block(sigset_t *previous) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  sigset_t all;
  sigfillset(&all);
  for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
    sigdelset(&all, faults[i]);
  }
  pthread_sigmask(SIG_SETMASK, &all, previous);
}

int gpufi_thread_start(pthread_t *thread, const char *name, size_t stack_nbytes,
                       void *(*main)(void *arg), void *arg) {
  pthread_attr_t attributes;
  sigset_t previous;
  pthread_attr_init(&attributes);
  if (stack_nbytes > 0) {
    pthread_attr_setstacksize(&attributes, stack_nbytes);
  }
  gpufi_signals_block(&previous);
  const gpufi_floating_point callers = gpufi_floating_point_begin(); /* a thread inherits it */
  const int code = pthread_create(thread, &attributes, main, arg);
  gpufi_floating_point_end(callers);
  pthread_sigmask(SIG_SETMASK, &previous, NULL);
  pthread_attr_destroy(&attributes);
  if (code == 0) {
    pthread_setname_np(*thread, name);
  }
  return code;
}
