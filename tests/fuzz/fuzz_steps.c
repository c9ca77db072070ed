/* Any bytes through the steps of HDF5's own filters. The input: a byte that says which steps there
 * are, one for shuffle's element size and the filter mask, two of the decoded size, and the chunk.
 */
#include "hdf5/steps.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  if (nbytes < 4) {
    return 0;
  }
  gpufi_h5_steps steps = {.count = data[0] & 3};
  for (int32_t i = 0; i < steps.count; i++) {
    steps.step[i].kind = (gpufi_h5_step_kind)((data[0] >> (2 + 2 * i) & 3) % 3);
    steps.step[i].element_nbytes = data[1] % 16 + 1;
  }
  const size_t raw_nbytes = (size_t)data[2] | (size_t)data[3] << 8;
  const size_t encoded_nbytes = nbytes - 4;
  if (raw_nbytes == 0 || encoded_nbytes > gpufi_h5_steps_bound(raw_nbytes)) {
    return 0;
  }
  uint8_t *const raw = malloc(raw_nbytes);
  void *const scratch = malloc(gpufi_h5_steps_scratch_nbytes(raw_nbytes));
  uint8_t *const exact = malloc(encoded_nbytes ? encoded_nbytes : 1);
  memcpy(exact, data + 4, encoded_nbytes);
  gpufi_h5_steps_decode(&steps, data[1] >> 4 & 7, exact, encoded_nbytes, raw, raw_nbytes, scratch,
                        NULL);
  free(exact);
  free(raw);
  free(scratch);
  return 0;
}
