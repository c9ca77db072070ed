/* Calls that fail on demand: memory, mappings, threads, system calls and the host backend's own
 * calls. The linker sends the library's and the test's calls here (-Wl,--wrap,
 * tests/c/meson.build); those of libhdf5, libzmq and libc are their own. Thread-safety: any thread.
 */
#ifndef GPUFI_TEST_FAULTS_H
#define GPUFI_TEST_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fault_kind {
  FAULT_MALLOC, /* malloc, calloc, realloc, aligned_alloc, posix_memalign, strdup */
  FAULT_MMAP,
  FAULT_THREAD, /* pthread_create */
  FAULT_DEVICE, /* streams, events, device memory, and enqueuing work */
  FAULT_SYSTEM, /* files, sockets and their kin; errno is EMFILE, ENOSPC or EIO */
  FAULT_KIND_COUNT,
} fault_kind;

extern const char *const fault_kind_names[FAULT_KIND_COUNT];

/* From now on the nth call (from 1) of a kind fails and, with `and_later`, every one after it. */
void faults_arm(fault_kind kind, int64_t nth, bool and_later);
/* No call of any kind fails any more. */
void faults_disarm(void);
/* Whether a call of this kind has failed since it was armed. */
bool faults_hit(fault_kind kind);

/* For other files of wrapped calls: count a call of this kind, and say whether it is to fail. */
bool faults_fail(fault_kind kind);

/* What exists now of all that the wrapped calls have made. */
typedef struct fault_balance {
  int64_t allocation_count; /* of malloc's kin */
  int64_t mapped_nbytes;
} fault_balance;

fault_balance faults_balance(void);

#endif
