/* The host backend's table, its copies and kernels, and fault injection: see host.h. */
#include "backend/host/host.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>

#include "backend/host/codec.h"
#include "backend/host/reduce.h"
#include "base/error.h"

static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER; /* guards `faults` */
static gpufi_host_faults faults = {-1, -1, 0, 0};

void gpufi_host_faults_set(const gpufi_host_faults *wanted) {
  pthread_mutex_lock(&faults_lock);
  faults = *wanted;
  pthread_mutex_unlock(&faults_lock);
}

bool gpufi_host_take_alloc(void) {
  bool granted = true;
  pthread_mutex_lock(&faults_lock);
  if (faults.alloc_fail_after == 0) {
    granted = false;
  } else if (faults.alloc_fail_after > 0) {
    faults.alloc_fail_after--;
  }
  pthread_mutex_unlock(&faults_lock);
  return granted;
}

size_t gpufi_host_take_copy(size_t nbytes) {
  size_t granted = nbytes;
  pthread_mutex_lock(&faults_lock);
  if (faults.copy_fail_after_nbytes >= 0) {
    if ((uint64_t)faults.copy_fail_after_nbytes < nbytes) {
      granted = (size_t)faults.copy_fail_after_nbytes;
    }
    faults.copy_fail_after_nbytes -= (int64_t)granted;
  }
  pthread_mutex_unlock(&faults_lock);
  return granted;
}

void gpufi_host_delay(size_t nbytes) {
  pthread_mutex_lock(&faults_lock);
  double ns = (double)faults.latency_ns;
  if (faults.link_nbytes_per_second > 0) {
    ns += 1e9 * (double)nbytes / (double)faults.link_nbytes_per_second;
  }
  pthread_mutex_unlock(&faults_lock);
  if (ns >= 1.0) {
    const time_t seconds = (time_t)(ns / 1e9);
    const struct timespec duration = {seconds, (long)(ns - 1e9 * (double)seconds)};
    nanosleep(&duration, NULL);
  }
}

static gpuf_status device_count(int32_t *count, gpuf_error *err) {
  *count = GPUFI_HOST_DEVICE_COUNT;
  return GPUF_OK;
}

static gpuf_status device_info(int32_t device, gpuf_device_info *info, gpuf_error *err) {
  struct sysinfo system;
  sysinfo(&system);
  const size_t total = (size_t)system.totalram * system.mem_unit;
  const size_t allocated = gpufi_host_allocated_nbytes(device);
  snprintf(info->name, sizeof(info->name), "host backend (a fake GPU on this machine's CPU)");
  info->total_nbytes = total;
  info->free_nbytes = allocated < total ? total - allocated : 0;
  return GPUF_OK;
}

/* Host memory needs no pinning to be copied by a thread. */
static gpuf_status pin(int32_t device, void *ptr, size_t nbytes, gpuf_error *err) {
  return GPUF_OK;
}
static void unpin(int32_t device, void *ptr) {}

static gpuf_status not_device_memory(const void *d_ptr, size_t nbytes, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_DEVICE, 0,
                    "%zu bytes at %p are not inside a live allocation of the host backend; keep "
                    "the memory allocated until the work on it is done",
                    nbytes, d_ptr);
}

typedef struct copy_args {
  void *dst;
  const void *src;
  size_t nbytes;
  gpufi_direction direction;
} copy_args;

static gpuf_status copy_work(const void *args, gpuf_error *err) {
  const copy_args *c = args;
  const bool to_host = c->direction == GPUFI_TO_HOST;
  gpufi_host_delay(c->nbytes);
  void *dst = to_host ? c->dst : gpufi_host_alias(c->dst, c->nbytes);
  const void *src = to_host ? gpufi_host_alias(c->src, c->nbytes) : c->src;
  if (!dst || !src) {
    return not_device_memory(to_host ? c->src : c->dst, c->nbytes, err);
  }
  const size_t granted = gpufi_host_take_copy(c->nbytes);
  memcpy(dst, src, granted);
  if (granted < c->nbytes) {
    return gpufi_fail(err, GPUF_ERR_DEVICE, 0,
                      "a copy of %zu bytes failed after %zu (injected fault)", c->nbytes, granted);
  }
  return GPUF_OK;
}

static gpuf_status copy(int32_t device, void *dst, const void *src, size_t nbytes,
                        gpufi_direction direction, gpuf_stream stream, gpuf_error *err) {
  const copy_args args = {dst, src, nbytes, direction};
  return gpufi_host_enqueue(device, stream, copy_work, &args, sizeof(args), err);
}

typedef struct rows_args {
  gpufi_rows rows;
  gpufi_direction direction;
} rows_args;

/* Bytes from a side's first row to the end of its last. */
static size_t rows_extent(const gpufi_rows *rows, size_t pitch_nbytes) {
  return (rows->row_count - 1) * pitch_nbytes + rows->row_nbytes;
}

static gpuf_status copy_2d_work(const void *args, gpuf_error *err) {
  const rows_args *a = args;
  const gpufi_rows *r = &a->rows;
  const bool to_host = a->direction == GPUFI_TO_HOST;
  const size_t nbytes = rows_extent(r, to_host ? r->src_pitch_nbytes : r->dst_pitch_nbytes);
  char *dst = to_host ? r->dst : gpufi_host_alias(r->dst, nbytes);
  const char *src = to_host ? gpufi_host_alias(r->src, nbytes) : r->src;
  gpufi_host_delay(r->row_count * r->row_nbytes);
  if (!dst || !src) {
    return not_device_memory(to_host ? r->src : r->dst, nbytes, err);
  }
  for (size_t row = 0; row < r->row_count; row++) {
    const size_t granted = gpufi_host_take_copy(r->row_nbytes);
    memcpy(dst + row * r->dst_pitch_nbytes, src + row * r->src_pitch_nbytes, granted);
    if (granted < r->row_nbytes) {
      return gpufi_fail(err, GPUF_ERR_DEVICE, 0,
                        "a copy of %zu rows of %zu bytes failed in row %zu (injected fault)",
                        r->row_count, r->row_nbytes, row);
    }
  }
  return GPUF_OK;
}

static gpuf_status copy_2d(int32_t device, const gpufi_rows *rows, gpufi_direction direction,
                           gpuf_stream stream, gpuf_error *err) {
  const rows_args args = {*rows, direction};
  return gpufi_host_enqueue(device, stream, copy_2d_work, &args, sizeof(args), err);
}

typedef struct clear_args {
  void *d_ptr;
  size_t nbytes;
} clear_args;

static gpuf_status clear_work(const void *args, gpuf_error *err) {
  const clear_args *a = args;
  void *const ptr = gpufi_host_alias(a->d_ptr, a->nbytes);
  gpufi_host_delay(0);
  if (!ptr) {
    return not_device_memory(a->d_ptr, a->nbytes, err);
  }
  memset(ptr, 0, a->nbytes);
  return GPUF_OK;
}

static gpuf_status clear(int32_t device, void *d_ptr, size_t nbytes, gpuf_stream stream,
                         gpuf_error *err) {
  const clear_args args = {d_ptr, nbytes};
  return gpufi_host_enqueue(device, stream, clear_work, &args, sizeof(args), err);
}

typedef struct pack_args {
  gpufi_strided layout;
  gpufi_cast cast; /* of pack_cast and unpack_cast */
  void *d_base;
  void *d_packed;
  int64_t first;
  int64_t count;
} pack_args;

/* Lowest and one past the highest byte that a layout touches, relative to its base. */
static void strided_extent(const gpufi_strided *layout, int64_t *low, int64_t *high) {
  *low = 0;
  *high = layout->element_nbytes;
  for (int32_t axis = 0; axis < layout->ndim; axis++) {
    const int64_t span = (layout->shape[axis] - 1) * layout->strides_nbytes[axis];
    *(span < 0 ? low : high) += span;
  }
}

/* `element_nbytes` is the packed elements' size. */
static gpuf_status pack_resolve(const pack_args *p, size_t element_nbytes, char **base,
                                char **packed, gpuf_error *err) {
  int64_t low, high;
  strided_extent(&p->layout, &low, &high);
  const size_t packed_nbytes = (size_t)p->count * element_nbytes;
  char *first_byte = gpufi_host_alias((char *)p->d_base + low, (size_t)(high - low));
  *packed = gpufi_host_alias(p->d_packed, packed_nbytes);
  if (!first_byte) {
    return not_device_memory((char *)p->d_base + low, (size_t)(high - low), err);
  }
  if (!*packed) {
    return not_device_memory(p->d_packed, packed_nbytes, err);
  }
  if ((uintptr_t)p->d_packed % GPUFI_STRIDED_UNIT_NBYTES_MAX != 0) {
    return gpufi_fail(err, GPUF_ERR_DEVICE, 0,
                      "packed elements at %p do not begin at a multiple of %d", p->d_packed,
                      GPUFI_STRIDED_UNIT_NBYTES_MAX);
  }
  *base = first_byte - low;
  return GPUF_OK;
}

static gpuf_status pack_work(const void *args, gpuf_error *err) {
  const pack_args *p = args;
  char *base = NULL, *packed = NULL;
  gpufi_host_delay(0);
  const gpuf_status status = pack_resolve(p, p->layout.element_nbytes, &base, &packed, err);
  if (status == GPUF_OK) {
    gpufi_strided_pack(&p->layout, base, p->first, p->count, packed);
  }
  return status;
}

static gpuf_status unpack_work(const void *args, gpuf_error *err) {
  const pack_args *p = args;
  char *base = NULL, *packed = NULL;
  gpufi_host_delay(0);
  const gpuf_status status = pack_resolve(p, p->layout.element_nbytes, &base, &packed, err);
  if (status == GPUF_OK) {
    gpufi_strided_unpack(&p->layout, base, p->first, p->count, packed);
  }
  return status;
}

static gpuf_status pack(int32_t device, const gpufi_strided *layout, const void *d_base,
                        int64_t first, int64_t count, void *d_dst, gpuf_stream stream,
                        gpuf_error *err) {
  const pack_args args = {.layout = *layout,
                          .d_base = (void *)d_base,
                          .d_packed = d_dst,
                          .first = first,
                          .count = count};
  return gpufi_host_enqueue(device, stream, pack_work, &args, sizeof(args), err);
}

static gpuf_status unpack(int32_t device, const gpufi_strided *layout, void *d_base, int64_t first,
                          int64_t count, const void *d_src, gpuf_stream stream, gpuf_error *err) {
  const pack_args args = {.layout = *layout,
                          .d_base = d_base,
                          .d_packed = (void *)d_src,
                          .first = first,
                          .count = count};
  return gpufi_host_enqueue(device, stream, unpack_work, &args, sizeof(args), err);
}

#define GATHER_PIECES_MAX 40

typedef struct gather_args {
  size_t count;
  gpufi_piece pieces[GATHER_PIECES_MAX];
} gather_args;

static gpuf_status gather_work(const void *args, gpuf_error *err) {
  const gather_args *g = args;
  gpufi_host_delay(0);
  for (size_t i = 0; i < g->count; i++) {
    const gpufi_piece *piece = &g->pieces[i];
    void *dst = gpufi_host_alias(piece->dst, piece->nbytes);
    const void *src = gpufi_host_alias(piece->src, piece->nbytes);
    if (!dst || !src) {
      return not_device_memory(dst ? piece->src : piece->dst, piece->nbytes, err);
    }
    memcpy(dst, src, piece->nbytes);
  }
  return GPUF_OK;
}

static gpuf_status gather(int32_t device, const gpufi_piece *pieces, size_t count,
                          gpuf_stream stream, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (size_t begin = 0; begin < count && status == GPUF_OK; begin += GATHER_PIECES_MAX) {
    gather_args args = {.count = count - begin};
    args.count = args.count < GATHER_PIECES_MAX ? args.count : GATHER_PIECES_MAX;
    memcpy(args.pieces, pieces + begin, args.count * sizeof(*pieces));
    status = gpufi_host_enqueue(device, stream, gather_work, &args, sizeof(args), err);
  }
  return status;
}

static gpuf_status pack_cast_work(const void *args, gpuf_error *err) {
  const pack_args *p = args;
  const size_t to_nbytes = gpuf_dtype_nbytes(p->cast.to);
  char buffer[4096];
  char *base = NULL, *packed = NULL;
  gpufi_host_delay(0);
  const gpuf_status status = pack_resolve(p, to_nbytes, &base, &packed, err);
  if (status != GPUF_OK) {
    return status;
  }
  const int64_t step = (int64_t)(sizeof(buffer) / p->layout.element_nbytes);
  for (int64_t at = 0; at < p->count; at += step) {
    const int64_t part = p->count - at < step ? p->count - at : step;
    gpufi_strided_pack(&p->layout, base, p->first + at, part, buffer);
    gpufi_cast_elements(p->cast, buffer, part, packed + (size_t)at * to_nbytes);
  }
  return GPUF_OK;
}

static gpuf_status pack_cast(int32_t device, const gpufi_strided *layout, gpufi_cast cast,
                             const void *d_base, int64_t first, int64_t count, void *d_dst,
                             gpuf_stream stream, gpuf_error *err) {
  const pack_args args = {.layout = *layout,
                          .cast = cast,
                          .d_base = (void *)d_base,
                          .d_packed = d_dst,
                          .first = first,
                          .count = count};
  return gpufi_host_enqueue(device, stream, pack_cast_work, &args, sizeof(args), err);
}

static gpuf_status unpack_cast_work(const void *args, gpuf_error *err) {
  const pack_args *p = args;
  const size_t from_nbytes = gpuf_dtype_nbytes(p->cast.from);
  char buffer[4096];
  char *base = NULL, *packed = NULL;
  gpufi_host_delay(0);
  const gpuf_status status = pack_resolve(p, from_nbytes, &base, &packed, err);
  if (status != GPUF_OK) {
    return status;
  }
  const int64_t step = (int64_t)(sizeof(buffer) / p->layout.element_nbytes);
  for (int64_t at = 0; at < p->count; at += step) {
    const int64_t part = p->count - at < step ? p->count - at : step;
    gpufi_cast_elements(p->cast, packed + (size_t)at * from_nbytes, part, buffer);
    gpufi_strided_unpack(&p->layout, base, p->first + at, part, buffer);
  }
  return GPUF_OK;
}

static gpuf_status unpack_cast(int32_t device, const gpufi_strided *layout, gpufi_cast cast,
                               void *d_base, int64_t first, int64_t count, const void *d_src,
                               gpuf_stream stream, gpuf_error *err) {
  const pack_args args = {.layout = *layout,
                          .cast = cast,
                          .d_base = d_base,
                          .d_packed = (void *)d_src,
                          .first = first,
                          .count = count};
  return gpufi_host_enqueue(device, stream, unpack_cast_work, &args, sizeof(args), err);
}

static size_t reduce_scratch_nbytes(const gpufi_reduce *job, const void *d_base) {
  return gpufi_host_reduce_scratch_nbytes(job);
}

const gpufi_backend gpufi_backend_host = {
    .kind = GPUF_DEVICE_HOST,
    .device_count = device_count,
    .device_info = device_info,
    .device_of = gpufi_host_device_of,
    .alloc = gpufi_host_alloc,
    .free = gpufi_host_free,
    .pin = pin,
    .unpin = unpin,
    .stream_create = gpufi_host_stream_create,
    .stream_destroy = gpufi_host_stream_destroy,
    .stream_synchronize = gpufi_host_stream_synchronize,
    .event_create = gpufi_host_event_create,
    .event_destroy = gpufi_host_event_destroy,
    .event_record = gpufi_host_event_record,
    .event_wait = gpufi_host_event_wait,
    .event_query = gpufi_host_event_query,
    .stream_wait_event = gpufi_host_stream_wait_event,
    .copy = copy,
    .copy_2d = copy_2d,
    .clear = clear,
    .pack = pack,
    .unpack = unpack,
    .gather = gather,
    .pack_cast = pack_cast,
    .unpack_cast = unpack_cast,
    .ipc_identity = gpufi_host_ipc_identity,
    .ipc_export = gpufi_host_ipc_export,
    .ipc_descriptor = gpufi_host_memory_fd,
    .ipc_open = gpufi_host_ipc_open,
    .ipc_close = gpufi_host_close,
    .reduce_scratch_nbytes = reduce_scratch_nbytes,
    .reduce = gpufi_host_reduce,
    .encode_scratch_nbytes = gpufi_host_encode_scratch_nbytes,
    .decode_scratch_nbytes = gpufi_host_decode_scratch_nbytes,
    .encode = gpufi_host_encode,
    .decode = gpufi_host_decode,
};

/* True on a stream thread while it runs a kernel of the program. */
static _Thread_local bool in_kernel;

typedef struct kernel_args {
  void (*kernel)(const void *args);
  _Alignas(16) char args[GPUFI_HOST_ARGS_NBYTES - 16];
} kernel_args;

static gpuf_status kernel_work(const void *args, gpuf_error *err) {
  const kernel_args *k = args;
  gpufi_host_delay(0);
  in_kernel = true;
  k->kernel(k->args);
  in_kernel = false;
  return GPUF_OK;
}

gpuf_status gpufi_host_launch(int32_t device, gpuf_stream stream, void (*kernel)(const void *args),
                              const void *args, size_t args_nbytes, gpuf_error *err) {
  kernel_args wrapped;
  if (args_nbytes > sizeof(wrapped.args)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%zu bytes of kernel arguments; at most %zu: pass a pointer instead",
                      args_nbytes, sizeof(wrapped.args));
  }
  wrapped.kernel = kernel;
  memcpy(wrapped.args, args, args_nbytes);
  return gpufi_host_enqueue(device, stream, kernel_work, &wrapped, sizeof(wrapped), err);
}

void *gpufi_host_kernel_pointer(const void *d_ptr) {
  return in_kernel ? gpufi_host_alias(d_ptr, 1) : NULL;
}
