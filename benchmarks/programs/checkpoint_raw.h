/* Raw ways to write and to read as many bytes as a checkpoint has, to one file or several. */
#ifndef GPUFI_BENCHMARK_CHECKPOINT_RAW_H
#define GPUFI_BENCHMARK_CHECKPOINT_RAW_H

#include <gpufetch/gpufetch.h>

typedef struct raw_work {
  const char *folder;
  const char *way; /* see checkpoint.c */
  int threads, files;
  size_t nbytes;       /* of all files */
  const void *pattern; /* is written again and again */
  size_t pattern_nbytes;
} raw_work;

/* Do it once, with memory that was touched before. With several files, each is one thread's alone,
 * if there are as many. */
gpuf_status raw_time(const raw_work *work, double *seconds, gpuf_error *err);

#endif
