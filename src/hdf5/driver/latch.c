#include "hdf5/driver/latch.h"

void gpufi_h5_latch_set(gpufi_h5_latch *latch, const char *operation, int system_error,
                        uint64_t offset) {
  if (__atomic_exchange_n(&latch->is_claimed, true, __ATOMIC_ACQ_REL)) {
    return;
  }
  latch->operation = operation;
  latch->system_error = system_error;
  latch->offset = offset;
  __atomic_store_n(&latch->is_set, true, __ATOMIC_RELEASE);
}

bool gpufi_h5_latch_is_set(const gpufi_h5_latch *latch) {
  return __atomic_load_n(&latch->is_set, __ATOMIC_ACQUIRE);
}
