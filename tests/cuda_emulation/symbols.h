/* The names of kernels and their variables in shared memory. Thread-safety: any thread. */
#ifndef GPUFI_TEST_CUDA_EMULATION_SYMBOLS_H
#define GPUFI_TEST_CUDA_EMULATION_SYMBOLS_H

#include <stddef.h>

#include <vector>

namespace emulation {

/* For messages; valid for ever. */
const char *function_name(const void *function);

/* A thread-local variable: where it lies from the start of a thread's on. */
struct variable {
  size_t offset, nbytes;
};

/* Those that are declared within the kernel, or within functions that kernels call: those whose
 * names do not end in _kernel. Valid for ever. */
const std::vector<variable> &shared_variables(const void *kernel);

} // namespace emulation

#endif
