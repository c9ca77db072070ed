/* Any cd_values and any buffer through the filter's callback, both ways. The input: one byte of
 * flags, one byte with the count of cd_values, those, and the buffer. */
#include "../../hdf5_filter/filter.h"
#include "chunk_input.h"

#include <hdf5.h>

static void run(unsigned int flags, size_t cd_count, const unsigned int *cd_values,
                const uint8_t *data, size_t nbytes) {
  const H5Z_class2_t *const filter = gpufi_filter_class(0);
  gpufi_chunk_shape shape;
  size_t raw_nbytes, capacity = nbytes + 5;
  const bool decodes = (flags & H5Z_FLAG_REVERSE) != 0;
  if (decodes && gpufi_codec_inspect(data, nbytes, &shape, &raw_nbytes, NULL) == GPUF_OK &&
      raw_nbytes > RAW_NBYTES_MAX) {
    return;
  }
  void *buffer = malloc(capacity), *const before = buffer;
  memcpy(buffer, data, nbytes);
  const size_t used = filter->filter(flags, cd_count, cd_values, nbytes, &capacity, &buffer);
  if (used == 0 ? buffer != before || capacity != nbytes + 5 : used > capacity) {
    abort();
  }
  if (used != 0 && decodes && used != cd_values[GPUFI_CD_AT_RAW_NBYTES]) {
    abort(); /* HDF5 reads as many bytes as the dataset's chunks have */
  }
  if (used != 0 && !decodes) { /* what was encoded decodes to the same bytes */
    const size_t back =
        filter->filter(H5Z_FLAG_REVERSE, cd_count, cd_values, used, &capacity, &buffer);
    if (back != nbytes || memcmp(buffer, data, nbytes) != 0) {
      abort();
    }
  }
  free(buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  if (nbytes < 2) {
    return 0;
  }
  const unsigned int flags = data[0] & 1 ? H5Z_FLAG_REVERSE : 0;
  const bool seal = (data[0] & 2) != 0, fit = (data[0] & 4) != 0;
  const size_t cd_count = data[1] % 16;
  data += 2;
  nbytes -= 2;
  if (nbytes < 4 * cd_count) {
    return 0;
  }
  unsigned int *cd_values = malloc(4 * cd_count + 1);
  memcpy(cd_values, data, 4 * cd_count);
  data += 4 * cd_count;
  nbytes -= 4 * cd_count;
  if (fit && cd_count > GPUFI_CD_AT_RAW_NBYTES) {
    cd_values[GPUFI_CD_AT_RAW_NBYTES] = (unsigned int)nbytes;
  }
  uint8_t *copy = malloc(nbytes + 1);
  memcpy(copy, data, nbytes);
  if (seal) {
    make_right(copy, nbytes);
  }
  run(flags, cd_count, cd_values, copy, nbytes);
  free(copy);
  free(cd_values);
  return 0;
}
