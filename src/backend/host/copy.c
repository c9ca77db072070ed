#include "backend/host/copy.h"

#include <string.h>

#include "backend/host/faults.h"
#include "backend/host/memory.h"
#include "backend/host/stream.h"
#include "base/arithmetic.h"
#include "base/error.h"

typedef struct copy_args {
  void *dst;
  const void *src;
  size_t nbytes;
  gpufi_direction direction;
} copy_args;

/* Where the stream's thread may touch both sides of a copy whose device side has `nbytes`. */
static gpuf_status resolve_copy(void **dst, const void **src, size_t nbytes,
                                gpufi_direction direction, gpuf_error *err) {
  const bool to_host = direction == GPUFI_TO_HOST;
  void *alias = NULL;
  const gpuf_status status = gpufi_host_resolve(to_host ? *src : *dst, nbytes, &alias, err);
  if (to_host) {
    *src = alias;
  } else {
    *dst = alias;
  }
  return status;
}

static gpuf_status copy_work(const void *args, gpuf_error *err) {
  copy_args c = *(const copy_args *)args;
  gpufi_host_delay(c.nbytes);
  const gpuf_status status = resolve_copy(&c.dst, &c.src, c.nbytes, c.direction, err);
  if (status != GPUF_OK) {
    return status;
  }
  const size_t granted = gpufi_host_take_copy(c.nbytes);
  memcpy(c.dst, c.src, granted);
  if (granted < c.nbytes) {
    return gpufi_fail(err, GPUF_ERR_DEVICE, 0,
                      "a copy of %zu bytes failed after %zu (injected fault)", c.nbytes, granted);
  }
  return GPUF_OK;
}

gpuf_status gpufi_host_copy(int32_t device, void *dst, const void *src, size_t nbytes,
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
  gpufi_rows r = a->rows;
  const bool to_host = a->direction == GPUFI_TO_HOST;
  const size_t nbytes = rows_extent(&r, to_host ? r.src_pitch_nbytes : r.dst_pitch_nbytes);
  gpufi_host_delay(r.row_count * r.row_nbytes);
  const gpuf_status status = resolve_copy(&r.dst, &r.src, nbytes, a->direction, err);
  for (size_t row = 0; row < r.row_count && status == GPUF_OK; row++) {
    const size_t granted = gpufi_host_take_copy(r.row_nbytes);
    memcpy((char *)r.dst + row * r.dst_pitch_nbytes, (const char *)r.src + row * r.src_pitch_nbytes,
           granted);
    if (granted < r.row_nbytes) {
      return gpufi_fail(err, GPUF_ERR_DEVICE, 0,
                        "a copy of %zu rows of %zu bytes failed in row %zu (injected fault)",
                        r.row_count, r.row_nbytes, row);
    }
  }
  return status;
}

gpuf_status gpufi_host_copy_2d(int32_t device, const gpufi_rows *rows, gpufi_direction direction,
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
  void *ptr;
  gpufi_host_delay(0);
  const gpuf_status status = gpufi_host_resolve(a->d_ptr, a->nbytes, &ptr, err);
  if (status == GPUF_OK) {
    memset(ptr, 0, a->nbytes);
  }
  return status;
}

gpuf_status gpufi_host_clear(int32_t device, void *d_ptr, size_t nbytes, gpuf_stream stream,
                             gpuf_error *err) {
  const clear_args args = {d_ptr, nbytes};
  return gpufi_host_enqueue(device, stream, clear_work, &args, sizeof(args), err);
}

/* Lowest and one past the highest byte that a layout touches, relative to its base. */
static void strided_extent(const gpufi_strided *layout, int64_t *low, int64_t *high) {
  *low = 0;
  *high = layout->element_nbytes;
  for (int32_t axis = 0; axis < layout->ndim; axis++) {
    const int64_t span = (layout->shape[axis] - 1) * layout->strides_nbytes[axis];
    *(span < 0 ? low : high) += span;
  }
}

/* Where the stream's thread may touch both sides. `element_nbytes` is the packed elements' size. */
static gpuf_status resolve_packing(gpufi_packing *p, size_t element_nbytes, gpuf_error *err) {
  int64_t low, high;
  void *first_byte = NULL, *packed = NULL;
  strided_extent(&p->layout, &low, &high);
  gpuf_status status =
      gpufi_host_resolve((char *)p->d_base + low, (size_t)(high - low), &first_byte, err);
  if (status == GPUF_OK) {
    status = gpufi_host_resolve(p->d_packed, (size_t)p->count * element_nbytes, &packed, err);
  }
  if (status == GPUF_OK && (uintptr_t)p->d_packed % GPUFI_STRIDED_UNIT_NBYTES_MAX != 0) {
    status = gpufi_fail(err, GPUF_ERR_DEVICE, 0,
                        "packed elements at %p do not begin at a multiple of %d", p->d_packed,
                        GPUFI_STRIDED_UNIT_NBYTES_MAX);
  }
  if (status == GPUF_OK) {
    p->d_base = (char *)first_byte - low;
    p->d_packed = packed;
  }
  return status;
}

/* Converts this many bytes of the layout's elements at a time. */
#define CAST_NBYTES 4096

static void pack_cast(const gpufi_packing *p, size_t packed_nbytes) {
  const int64_t step = CAST_NBYTES / p->layout.element_nbytes;
  char buffer[CAST_NBYTES];
  for (int64_t at = 0; at < p->count; at += step) {
    const int64_t count = gpufi_min_int64(p->count - at, step);
    gpufi_strided_pack(&p->layout, p->d_base, p->first + at, count, buffer);
    gpufi_cast_elements(p->cast, buffer, count, (char *)p->d_packed + (size_t)at * packed_nbytes);
  }
}

static void unpack_cast(const gpufi_packing *p, size_t packed_nbytes) {
  const int64_t step = CAST_NBYTES / p->layout.element_nbytes;
  char buffer[CAST_NBYTES];
  for (int64_t at = 0; at < p->count; at += step) {
    const int64_t count = gpufi_min_int64(p->count - at, step);
    gpufi_cast_elements(p->cast, (char *)p->d_packed + (size_t)at * packed_nbytes, count, buffer);
    gpufi_strided_unpack(&p->layout, p->d_base, p->first + at, count, buffer);
  }
}

static gpuf_status pack_work(const void *args, gpuf_error *err) {
  gpufi_packing p = *(const gpufi_packing *)args;
  const bool casts = gpufi_packing_casts(&p);
  const size_t nbytes = casts ? gpuf_dtype_nbytes(p.cast.to) : p.layout.element_nbytes;
  gpufi_host_delay(0);
  const gpuf_status status = resolve_packing(&p, nbytes, err);
  if (status == GPUF_OK && casts) {
    pack_cast(&p, nbytes);
  } else if (status == GPUF_OK) {
    gpufi_strided_pack(&p.layout, p.d_base, p.first, p.count, p.d_packed);
  }
  return status;
}

static gpuf_status unpack_work(const void *args, gpuf_error *err) {
  gpufi_packing p = *(const gpufi_packing *)args;
  const bool casts = gpufi_packing_casts(&p);
  const size_t nbytes = casts ? gpuf_dtype_nbytes(p.cast.from) : p.layout.element_nbytes;
  gpufi_host_delay(0);
  const gpuf_status status = resolve_packing(&p, nbytes, err);
  if (status == GPUF_OK && casts) {
    unpack_cast(&p, nbytes);
  } else if (status == GPUF_OK) {
    gpufi_strided_unpack(&p.layout, p.d_base, p.first, p.count, p.d_packed);
  }
  return status;
}

gpuf_status gpufi_host_pack(int32_t device, const gpufi_packing *packing, gpuf_stream stream,
                            gpuf_error *err) {
  return gpufi_host_enqueue(device, stream, pack_work, packing, sizeof(*packing), err);
}

gpuf_status gpufi_host_unpack(int32_t device, const gpufi_packing *packing, gpuf_stream stream,
                              gpuf_error *err) {
  return gpufi_host_enqueue(device, stream, unpack_work, packing, sizeof(*packing), err);
}

#define GATHER_COPIES_MAX 40 /* as many as fit GPUFI_HOST_ARGS_NBYTES */

typedef struct gather_args {
  size_t count;
  gpufi_flat_copy copies[GATHER_COPIES_MAX];
} gather_args;

static gpuf_status gather_work(const void *args, gpuf_error *err) {
  const gather_args *g = args;
  gpuf_status status = GPUF_OK;
  gpufi_host_delay(0);
  for (size_t i = 0; i < g->count && status == GPUF_OK; i++) {
    const gpufi_flat_copy *copy = &g->copies[i];
    void *dst = NULL, *src = NULL;
    status = gpufi_host_resolve(copy->dst, copy->nbytes, &dst, err);
    if (status == GPUF_OK) {
      status = gpufi_host_resolve(copy->src, copy->nbytes, &src, err);
    }
    if (status == GPUF_OK) {
      memcpy(dst, src, copy->nbytes);
    }
  }
  return status;
}

gpuf_status gpufi_host_gather(int32_t device, const gpufi_flat_copy *copies, size_t count,
                              gpuf_stream stream, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (size_t begin = 0; begin < count && status == GPUF_OK; begin += GATHER_COPIES_MAX) {
    gather_args args = {.count = gpufi_min_nbytes(count - begin, GATHER_COPIES_MAX)};
    memcpy(args.copies, copies + begin, args.count * sizeof(*copies));
    status = gpufi_host_enqueue(device, stream, gather_work, &args, sizeof(args), err);
  }
  return status;
}
