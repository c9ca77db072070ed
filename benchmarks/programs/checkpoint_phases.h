/* How long the phases of a checkpoint and of a restart took: the linker sends the library's calls
 * of some functions here, which take the time and pass them on. Times add up, also those of several
 * threads. */
#ifndef GPUFI_BENCHMARK_CHECKPOINT_PHASES_H
#define GPUFI_BENCHMARK_CHECKPOINT_PHASES_H

typedef enum phase {
  PHASE_TAKE,    /* make a file, or take over an older one */
  PHASE_CLOSE,   /* H5Fclose: the last writes, unmapping, truncation */
  PHASE_SEAL,    /* sum up what is no elements */
  PHASE_PUBLISH, /* fsync, rename, fsync of the folder */
  PHASE_PRUNE,   /* remove what has expired */
  PHASE_CHECK,   /* compare a file with its seal */
  PHASE_VERIFY,  /* compare all chunks with the manifest */
  PHASE_PLACES,  /* find where chunks lie; a part of verifying, and of reading */
  PHASE_MEMORY,  /* take memory for batches */
  PHASE_DEVICE,  /* wait for the device, which encodes and sends batches, or keeps them */
  PHASE_PUT,     /* tell HDF5 of chunks */
  PHASE_WRITE,   /* wait until the chunks of the batch before are in the file */
  PHASE_COUNT,
} phase;

extern const char *const phase_names[PHASE_COUNT];

/* The seconds since this was called last. */
void phases_take(double seconds[PHASE_COUNT]);

#endif
