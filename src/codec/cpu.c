#include "codec/cpu.h"
#include "base/error.h"

#include <stdatomic.h>
#include <stdlib.h>

/* From the slowest to the fastest. */
static const gpufi_cpu *const all[] = {
    &gpufi_cpu_scalar,
#if defined(__x86_64__)
    &gpufi_cpu_avx2,
    &gpufi_cpu_avx512,
#elif defined(__aarch64__)
    &gpufi_cpu_neon,
#endif
};

#define ALL_COUNT (sizeof(all) / sizeof(all[0]))

static bool can_run(const gpufi_cpu *cpu) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
  if (cpu == &gpufi_cpu_avx512) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("gfni");
  }
  return cpu != &gpufi_cpu_avx2 || avx2;
#else
  return cpu != NULL; /* a 64-bit Arm has NEON */
#endif
}

const gpufi_cpu *gpufi_cpu_at(size_t index) {
  for (size_t i = 0; i < ALL_COUNT; i++) {
    if (can_run(all[i]) && index-- == 0) {
      return all[i];
    }
  }
  return NULL;
}

const gpufi_cpu *gpufi_cpu_find(const char *name) {
  for (size_t i = 0; i < ALL_COUNT; i++) {
    if (strcmp(all[i]->name, name) == 0) {
      return can_run(all[i]) ? all[i] : NULL;
    }
  }
  return NULL;
}

/* The name in GPUFETCH_CPU; null where it is unset, empty or "auto". */
static const char *wanted_name(void) {
  const char *const name = getenv("GPUFETCH_CPU");
  return name == NULL || name[0] == '\0' || strcmp(name, "auto") == 0 ? NULL : name;
}

static const gpufi_cpu *fastest(void) {
  const gpufi_cpu *best = &gpufi_cpu_scalar;
  for (size_t i = 1; i < ALL_COUNT; i++) {
    best = can_run(all[i]) ? all[i] : best;
  }
  return best;
}

/* Written once with a value that any thread would find, or by gpufi_cpu_use. */
static _Atomic(const gpufi_cpu *) chosen;

const gpufi_cpu *gpufi_cpu_get(void) {
  const gpufi_cpu *cpu = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (cpu == NULL) {
    const char *const name = wanted_name();
    cpu = name != NULL ? gpufi_cpu_find(name) : NULL;
    cpu = cpu != NULL ? cpu : fastest();
    atomic_store_explicit(&chosen, cpu, memory_order_relaxed);
  }
  return cpu;
}

void gpufi_cpu_use(const gpufi_cpu *cpu) {
  atomic_store_explicit(&chosen, cpu, memory_order_relaxed);
}

/* The verdict is reached once, for other threads may change the environment later. */
gpuf_status gpufi_cpu_check(gpuf_error *err) {
  static _Atomic(int) verdict; /* 0 unknown, 1 good, 2 bad */
  int known = atomic_load_explicit(&verdict, memory_order_relaxed);
  if (known == 0) {
    const char *const name = wanted_name();
    known = name == NULL || gpufi_cpu_find(name) != NULL ? 1 : 2;
    atomic_store_explicit(&verdict, known, memory_order_relaxed);
  }
  if (known == 1) {
    return GPUF_OK;
  }
  const char *const name = wanted_name();
  return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                    "GPUFETCH_CPU=%.40s: this CPU has no such implementation of the codec; the "
                    "fastest that it has is %s, and auto or nothing takes that",
                    name ? name : "", fastest()->name);
}
