/* A share of this process for the tests of sharing, and what they ask of it. */
#ifndef GPUFI_TEST_SHARE_FIXTURE_H
#define GPUFI_TEST_SHARE_FIXTURE_H

#include "share_worker.h"

static gpuf_error err;

/* A view into random bytes in device memory, and what sharing it needs. */
typedef struct shared {
  void *d_ptr;
  gpuf_tensor tensor;
  gpuf_share_handle handle;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES];
} shared;

static inline void *device_bytes(size_t nbytes, uint64_t seed) {
  const int64_t count = (int64_t)nbytes;
  gpuf_tensor tensor, source;
  void *d_ptr, *bytes = malloc(nbytes);
  fill_random(bytes, nbytes, seed);
  CHECK_OK(gpuf_alloc(test_device, nbytes, &d_ptr, &err));
  CHECK_OK(gpuf_tensor_init(&tensor, d_ptr, test_device, GPUF_DTYPE_UINT8, 1, &count, &err));
  CHECK_OK(gpuf_tensor_init(&source, bytes, cpu_device, GPUF_DTYPE_UINT8, 1, &count, &err));
  CHECK_OK(gpuf_copy(&tensor, &source, NULL, &err));
  free(bytes);
  return d_ptr;
}

/* `options` may be NULL. */
static inline void share_tensor(shared *s, const gpuf_share_options *options) {
  CHECK_OK(gpuf_share(&s->tensor, options, &s->handle, &err));
  CHECK_OK(gpuf_share_to_text(&s->handle, s->text, &err));
}

/* `offset_nbytes` into an allocation of 300,000 bytes. */
static inline shared share_floats(int32_t ndim, const int64_t *shape, size_t offset_nbytes) {
  shared s;
  s.d_ptr = device_bytes(300000, 7 + offset_nbytes);
  CHECK_OK(gpuf_tensor_init(&s.tensor, (char *)s.d_ptr + offset_nbytes, test_device,
                            GPUF_DTYPE_FLOAT32, ndim, shape, &err));
  share_tensor(&s, NULL);
  return s;
}

static inline shared share_some(void) {
  const int64_t shape[2] = {30, 100};
  return share_floats(2, shape, 0);
}

#define WAIT_NS INT64_C(20000000000) /* longer than any wait that ends well */

static inline void end_share(shared *s) {
  CHECK_OK(gpuf_unshare(&s->handle, WAIT_NS, NULL, &err));
  CHECK_OK(gpuf_free(test_device, s->d_ptr, &err));
}

static inline void check_hash(worker *w, int number, const gpuf_tensor *tensor) {
  uint64_t hash;
  char text[32];
  CHECK_OK(tensor_hash(tensor, &hash, &err));
  snprintf(text, sizeof(text), "%llx", (unsigned long long)hash);
  WORKER_OK(w, "hash %d", number);
  CHECK(strcmp(w->answer, text) == 0);
}

/* A worker attaches and finds the same elements; then the share ends. */
static inline void check_arrives(shared *s) {
  worker w = worker_start();
  WORKER_OK(&w, "attach %s", s->text);
  check_hash(&w, 0, &s->tensor);
  worker_stop(&w);
  end_share(s);
}

/* The other way round: bytes that a worker shares. */
static inline gpuf_share_handle share_of_worker(worker *w) {
  gpuf_share_handle handle;
  WORKER_OK(w, "share %d 5000 3", test_device.kind);
  CHECK_OK(gpuf_share_from_text(w->answer, &handle, &err));
  return handle;
}

/* A worker that shares some, and this process's attachment to it. */
typedef struct attached {
  worker w;
  gpuf_share_handle handle;
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
} attached;

static inline attached attach_to_worker(void) {
  attached a = {.w = worker_start()};
  a.handle = share_of_worker(&a.w);
  CHECK_OK(gpuf_attach(&a.handle, &a.attachment, &a.tensor, &err));
  return a;
}

static inline int32_t importers(const shared *s) {
  int32_t count = -1;
  CHECK_OK(gpuf_share_importer_count(&s->handle, &count, &err));
  return count;
}

#endif
