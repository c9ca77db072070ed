#include "codec/planes.h"
#include "base/arithmetic.h"
#include "codec/cpu.h"

/* An encoder's rule: up to so many components, and at least so many values of each in a row. Beyond
 * the first number only single bytes, which are parts of records and strings. */
#define PLANES_MAX 16
#define LENGTH_MIN 16

/* More components than a kernel takes go by fours, TILE elements of each at a time, and those that
 * are left one by one. */
#define FOUR 4
#define TILE 512

/* The axis that the last one changes places with; -1 if there is none. */
static int32_t long_axis(const gpufi_chunk_shape *shape) {
  int32_t a = shape->ndim - 2;
  while (a >= 0 && shape->dims[a] == 1) {
    a--;
  }
  return a;
}

bool gpufi_planes_fit(const gpufi_chunk_shape *shape) {
  const uint32_t planes = shape->dims[shape->ndim - 1];
  return planes >= 2 && planes <= GPUFI_PLANES_MAX && long_axis(shape) >= 0;
}

bool gpufi_planes_pay(const gpufi_chunk_shape *shape) {
  const uint32_t planes = shape->dims[shape->ndim - 1];
  return gpufi_planes_fit(shape) &&
         (planes <= PLANES_MAX || gpufi_chunk_element_nbytes(shape->dtype) == 1) &&
         shape->dims[long_axis(shape)] >= LENGTH_MIN && shape->dims[long_axis(shape)] >= planes;
}

gpufi_chunk_shape gpufi_planes_shape(const gpufi_chunk_shape *shape) {
  gpufi_chunk_shape coded = *shape;
  const int32_t a = long_axis(shape), last = shape->ndim - 1;
  coded.dims[a] = shape->dims[last];
  coded.dims[last] = shape->dims[a];
  return coded;
}

/* A row: `length` elements of each of `planes` components. `count` of them are the chunk. */
typedef struct row {
  size_t count, length, planes, element_nbytes;
  const gpufi_cpu *cpu;
} row;

static row rows_of(const gpufi_chunk_shape *shape) {
  const size_t planes = shape->dims[shape->ndim - 1], length = shape->dims[long_axis(shape)];
  size_t count = 1;
  for (int32_t a = 0; a < long_axis(shape); a++) {
    count *= shape->dims[a];
  }
  return (row){count, length, planes, gpufi_chunk_element_nbytes(shape->dtype), gpufi_cpu_get()};
}

/* Elements of a fixed size one by one, `from_step` bytes apart to `to_step` apart. */
static void move_each(const uint8_t *from, size_t from_step, size_t count, size_t nbytes,
                      uint8_t *to, size_t to_step) {
#define EACH(n)                                                                                    \
  case n:                                                                                          \
    for (size_t i = 0; i < count; i++) {                                                           \
      memcpy(to + i * to_step, from + i * from_step, n);                                           \
    }                                                                                              \
    break
  switch (nbytes) {
    EACH(1);
    EACH(2);
    EACH(4);
    EACH(8);
    EACH(16);
  default:
    EACH(32);
  }
#undef EACH
}

/* Components `first` to first + 3 of more, by way of a tile where only these are. */
static void split_four(const row *r, const uint8_t *raw, size_t first, uint8_t *coded) {
  uint8_t tile[TILE * FOUR * 8];
  const size_t nbytes = r->element_nbytes, pitch = r->length * nbytes;
  for (size_t i = 0; i < r->length; i += TILE) {
    const size_t count = gpufi_min_nbytes(r->length - i, TILE);
    move_each(raw + (i * r->planes + first) * nbytes, r->planes * nbytes, count, FOUR * nbytes,
              tile, FOUR * nbytes);
    r->cpu->split_planes[gpufi_value_index(nbytes)](tile, count, FOUR,
                                                    coded + first * pitch + i * nbytes, pitch);
  }
}

static void join_four(const row *r, const uint8_t *coded, size_t first, uint8_t *raw) {
  uint8_t tile[TILE * FOUR * 8];
  const size_t nbytes = r->element_nbytes, pitch = r->length * nbytes;
  for (size_t i = 0; i < r->length; i += TILE) {
    const size_t count = gpufi_min_nbytes(r->length - i, TILE);
    r->cpu->join_planes[gpufi_value_index(nbytes)](coded + first * pitch + i * nbytes, pitch, count,
                                                   FOUR, tile);
    move_each(tile, FOUR * nbytes, count, FOUR * nbytes, raw + (i * r->planes + first) * nbytes,
              r->planes * nbytes);
  }
}

static void split_row(const row *r, const uint8_t *raw, uint8_t *coded) {
  const size_t nbytes = r->element_nbytes, pitch = r->length * nbytes;
  const bool has_kernel = nbytes <= 8;
  if (has_kernel && r->planes <= FOUR) {
    r->cpu->split_planes[gpufi_value_index(nbytes)](raw, r->length, (unsigned)r->planes, coded,
                                                    pitch);
    return;
  }
  size_t k = 0;
  for (; has_kernel && k + FOUR <= r->planes; k += FOUR) {
    split_four(r, raw, k, coded);
  }
  for (; k < r->planes; k++) {
    move_each(raw + k * nbytes, r->planes * nbytes, r->length, nbytes, coded + k * pitch, nbytes);
  }
}

static void join_row(const row *r, const uint8_t *coded, uint8_t *raw) {
  const size_t nbytes = r->element_nbytes, pitch = r->length * nbytes;
  const bool has_kernel = nbytes <= 8;
  if (has_kernel && r->planes <= FOUR) {
    r->cpu->join_planes[gpufi_value_index(nbytes)](coded, pitch, r->length, (unsigned)r->planes,
                                                   raw);
    return;
  }
  size_t k = 0;
  for (; has_kernel && k + FOUR <= r->planes; k += FOUR) {
    join_four(r, coded, k, raw);
  }
  for (; k < r->planes; k++) {
    move_each(coded + k * pitch, nbytes, r->length, nbytes, raw + k * nbytes, r->planes * nbytes);
  }
}

void gpufi_planes_split(const gpufi_chunk_shape *shape, const uint8_t *raw, uint8_t *coded) {
  const row r = rows_of(shape);
  const size_t row_nbytes = r.length * r.planes * r.element_nbytes;
  for (size_t i = 0; i < r.count; i++) {
    split_row(&r, raw + i * row_nbytes, coded + i * row_nbytes);
  }
}

void gpufi_planes_join(const gpufi_chunk_shape *shape, const uint8_t *coded, uint8_t *raw) {
  const row r = rows_of(shape);
  const size_t row_nbytes = r.length * r.planes * r.element_nbytes;
  for (size_t i = 0; i < r.count; i++) {
    join_row(&r, coded + i * row_nbytes, raw + i * row_nbytes);
  }
}
