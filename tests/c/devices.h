/* Devices that a test runs on, and random data for them. */
#ifndef GPUFI_TEST_DEVICES_H
#define GPUFI_TEST_DEVICES_H

#include <gpufetch/gpufetch.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static const gpuf_device cpu_device __attribute__((unused)) = {GPUF_DEVICE_CPU, 0};
static const gpuf_device host_device __attribute__((unused)) = {GPUF_DEVICE_HOST, 0};

/* Run a test that takes the device from `test_device`, on the host backend and on a GPU, or on the
 * emulation of a GPU alone. */
static gpuf_device test_device __attribute__((unused));

#ifdef TEST_CUDA_EMULATION
#define TEST_ON_DEVICES(function)                                                                  \
  do {                                                                                             \
    test_device = (gpuf_device){GPUF_DEVICE_CUDA, 0};                                              \
    test_run(#function " on emulated cuda", function);                                             \
  } while (0)
#else
#define TEST_ON_DEVICES(function)                                                                  \
  do {                                                                                             \
    test_device = host_device;                                                                     \
    test_run(#function " on host", function);                                                      \
    test_device = (gpuf_device){GPUF_DEVICE_CUDA, 0};                                              \
    test_run(#function " on cuda", gpu_is_there() ? function : skip_for_no_gpu);                   \
  } while (0)
#endif

/* A number that makes a test large, or less of it where the emulation would take minutes. */
#ifdef TEST_CUDA_EMULATION
#define TEST_OR_LESS(number, less) (less)
#else
#define TEST_OR_LESS(number, less) (number)
#endif

/* Loops over many cases of a kind take every n-th: all of them, unless GPUFETCH_TEST_EVERY says
 * otherwise, for tools that slow a kernel down a hundredfold. */
static inline int test_every(void) {
  const char *text = getenv("GPUFETCH_TEST_EVERY");
  const int every = text ? atoi(text) : 1;
  return every > 0 ? every : 1;
}

/* Loops over random cases go on for so many times as many: 1, unless GPUFETCH_TEST_TIMES says
 * otherwise. */
static inline int test_times(void) {
  const char *text = getenv("GPUFETCH_TEST_TIMES");
  const int times = text ? atoi(text) : 1;
  return times > 0 ? times : 1;
}

static inline bool gpu_is_there(void) {
  int32_t count;
  return gpuf_device_count(GPUF_DEVICE_CUDA, &count, NULL) == GPUF_OK;
}

static inline void skip_for_no_gpu(void) {
  SKIP("no GPU: no CUDA device answers");
}

/* xorshift64*: the same bytes on every machine. */
static inline void fill_random(void *dst, size_t nbytes, uint64_t seed) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  unsigned char *bytes = dst;
  for (size_t i = 0; i < nbytes; i++) {
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    bytes[i] = (unsigned char)((x * 0x2545f4914f6cdd1du) >> 56);
  }
}

static inline uint64_t random_below(uint64_t *state, uint64_t limit) {
  uint64_t value;
  fill_random(&value, sizeof(value), ++*state);
  return value % limit;
}

#endif
