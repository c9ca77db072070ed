/* Which of the tables of inner loops (kernels.h) is in use.
 *
 * Thread-safety: the tables are constant, and one is chosen at the first use, by whichever thread
 * comes first. */
#ifndef GPUFI_CODEC_CPU_H
#define GPUFI_CODEC_CPU_H

#include "codec/kernels.h"

#include <gpufetch/gpufetch.h>

/* The table in use: the fastest this CPU can run, unless GPUFETCH_CPU names another. */
const gpufi_cpu *gpufi_cpu_get(void);

/* GPUF_ERR_INVALID if GPUFETCH_CPU names one that this CPU cannot run. */
gpuf_status gpufi_cpu_check(gpuf_error *err);

/* The table of this name, or null if there is none or this CPU cannot run it. */
const gpufi_cpu *gpufi_cpu_find(const char *name);

/* The `index`-th table that this CPU can run, the scalar one first; null after the last. */
const gpufi_cpu *gpufi_cpu_at(size_t index);

/* Use this one from now on, in every thread. For tests. */
void gpufi_cpu_use(const gpufi_cpu *cpu);

#endif
