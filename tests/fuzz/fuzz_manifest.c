/* Any bytes into the parser of checkpoints' manifests: as they are, and with a first line and the
 * checksum made right. What it accepts must come back from its own text. */
#include "hdf5/checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void check_as(const char *text, size_t nbytes, bool is_share) {
  gpufi_checkpoint_contents contents = {.is_share = is_share}, again = {.is_share = is_share};
  gpuf_error err;
  char *first, *second;
  size_t first_nbytes, second_nbytes;
  if (gpufi_checkpoint_manifest_parse(&contents, text, nbytes, &err) == GPUF_OK) {
    if (gpufi_checkpoint_manifest_format(&contents, &first, &first_nbytes, &err) != GPUF_OK ||
        gpufi_checkpoint_manifest_parse(&again, first, first_nbytes, &err) != GPUF_OK ||
        gpufi_checkpoint_manifest_format(&again, &second, &second_nbytes, &err) != GPUF_OK ||
        first_nbytes != second_nbytes || memcmp(first, second, first_nbytes) != 0) {
      abort();
    }
    free(first);
    free(second);
  }
  gpufi_checkpoint_contents_clear(&contents);
  gpufi_checkpoint_contents_clear(&again);
}

/* As a checkpoint's, and as what a rank says of its shards. */
static void check(const char *text, size_t nbytes) {
  check_as(text, nbytes, false);
  check_as(text, nbytes, true);
}

/* As the lines of a manifest that begins so. */
static void check_behind(const char *begin, const uint8_t *data, size_t nbytes) {
  const size_t begin_nbytes = strlen(begin), end_nbytes = 21;
  char *const text = malloc(begin_nbytes + nbytes + end_nbytes + 1);
  memcpy(text, begin, begin_nbytes);
  memcpy(text + begin_nbytes, data, nbytes);
  snprintf(text + begin_nbytes + nbytes, end_nbytes + 1, "end %016" PRIx64 "\n",
           gpufi_h5_hash(text, begin_nbytes + nbytes));
  check(text, begin_nbytes + nbytes + end_nbytes);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  char *const text = malloc(nbytes + 1);
  memcpy(text, data, nbytes);
  check(text, nbytes);
  free(text);
  check_behind("gpufetch checkpoint 1\nlibrary 0.1.0\nstep 7\n", data, nbytes);
  check_behind("gpufetch checkpoint 2\nlibrary 0.1.0\nstep 7\n", data, nbytes);
  return 0;
}
