#include "codec/numbers.h"
#include "codec/number.h"
#include "codec/widths.h"

bool gpufi_numbers_read(gpufi_numbers *numbers, const gpufi_chunk_header *header,
                        const uint8_t *parameters) {
  gpufi_geometry g;
  gpufi_header_geometry(header, &g);
  *numbers = (gpufi_numbers){
      .value_nbytes = g.value_nbytes, .transform = header->transform, .shift = header->shift};
  if (!gpufi_transform_has_parameters(header->transform)) {
    return true;
  }
  memcpy(&numbers->a, parameters, 8);
  memcpy(&numbers->b, parameters + 8, 8);
  return gpufi_parameters_are_good(header->transform, numbers->a, numbers->b);
}

#define GPUFI_EACH_WIDTH "codec/numbers_impl.h"
#include "codec/each_width.h"

void gpufi_numbers_undo(const gpufi_numbers *numbers, const uint8_t *corrections, size_t count,
                        uint8_t *values) {
  switch (numbers->value_nbytes) {
  case 1: /* a shift leaves one bit of a byte to the transforms, as of any other value */
    undo_all_8(numbers, corrections, count, values);
    break;
  case 2:
    undo_all_16(numbers, corrections, count, values);
    break;
  case 4:
    undo_all_32(numbers, corrections, count, values);
    break;
  default:
    undo_all_64(numbers, corrections, count, values);
  }
}
