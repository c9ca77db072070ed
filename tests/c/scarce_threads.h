/* A pthread_create that fails once `threads_left` have been created, as a system does that is at
 * its limit. It replaces libpthread's in the test program. */
#ifndef GPUFI_TEST_SCARCE_THREADS_H
#define GPUFI_TEST_SCARCE_THREADS_H

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_int threads_left = INT_MAX;

static int (*create_thread)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

__attribute__((constructor)) static void find_create_thread(void) {
  *(void **)&create_thread = dlsym(RTLD_NEXT, "pthread_create"); /* as POSIX recommends */
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *arg) {
  return atomic_fetch_sub(&threads_left, 1) > 0 ? create_thread(thread, attributes, start, arg)
                                                : EAGAIN;
}

#endif
