/* A tensor that can be read, where it comes from, and its place in a global array. Values: nothing
 * here locks or allocates. */
#ifndef GPUFI_COMM_SOURCE_H
#define GPUFI_COMM_SOURCE_H

#include <gpufetch/serve.h>

/* Where a tensor lies in an array that several servers hold together, a part each: the array's
 * shape, and the part's first index along each of its axes, which are the tensor's. */
typedef struct gpufi_part {
  bool is_given; /* false: the tensor is a whole array, and the rest is 0 */
  int64_t global_shape[GPUF_NDIM_MAX], start[GPUF_NDIM_MAX];
} gpufi_part;

typedef struct gpufi_source {
  gpuf_tensor tensor;
  /* The thread whose default stream tensor.stream is (gpufi_thread_number); 0: it is none's. */
  uint64_t stream_thread;
  gpufi_part part;
  char framework[32]; /* NUL-terminated; "" = not known */
  /* Called once when the dispatcher needs the tensor no more, on any thread; may be NULL. */
  void (*release)(void *release_arg);
  void *release_arg;
  struct gpuf_attachment *attachment; /* of another process's memory; NULL for other memory */
} gpufi_source;

/* Describe what a program publishes; `options`, of which every member is set, may be NULL. Fails
 * for a descriptor that does not hold together, and for a part that does not lie inside an array of
 * less than 2^63 bytes. `name` is for messages. */
gpuf_status gpufi_source_init(gpufi_source *source, const char *name, const gpuf_tensor *tensor,
                              const gpuf_publish_options *options, gpuf_error *err);
void gpufi_source_release(const gpufi_source *source);
/* GPUF_ERR_UNSUPPORTED where the calling thread cannot wait for the work on tensor.stream. */
gpuf_status gpufi_source_check_stream(const gpufi_source *source, gpuf_error *err);
/* GPUF_ERR_STATE where the process has ended whose memory it is. */
gpuf_status gpufi_source_check(const gpufi_source *source, gpuf_error *err);

/* Whether two sources have the same shape, element type, device and part. */
bool gpufi_source_same_type(const gpufi_source *a, const gpufi_source *b);
/* Whether, beyond that, they are the same elements in memory. */
bool gpufi_source_same_memory(const gpufi_source *a, const gpufi_source *b);

#endif
