#include "filter.h"
#include "base/error.h"
#include "caller.h"
#include "describe.h"
#include "hdf5_types.h"
#include "ids.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Buffers come from malloc and go back with free: HDF5 allocates and frees the buffers of a
 * filter pipeline with these in every release since 1.10.3 that is built for use (the allocator
 * with sanity checks is a debugging build). H5allocate_memory would name the same heap, but it
 * takes the library's lock, which the thread that decodes need not hold. */

/* What cd_values say. */
typedef struct parameters {
  gpufi_chunk_shape shape;
  size_t raw_nbytes;
  bool big_endian;
} parameters;

static void push_failure(const void *return_address, const gpuf_error *err) {
  char text[GPUF_ERROR_MESSAGE_NBYTES + 16];
  snprintf(text, sizeof(text), "gpufetch: %s", err->message);
  gpufi_caller_push_error(return_address, text);
}

size_t gpufi_filter_cd_values(const gpufi_chunk_shape *shape, bool big_endian,
                              unsigned int cd_values[GPUFI_CD_COUNT_MAX]) {
  size_t raw_nbytes;
  if (gpufi_chunk_raw_nbytes(shape, &raw_nbytes, NULL) != GPUF_OK) {
    return 0;
  }
  cd_values[GPUFI_CD_AT_VERSION] = GPUFI_CD_VERSION;
  cd_values[GPUFI_CD_AT_DTYPE] =
      (unsigned int)shape->dtype | (big_endian ? GPUFI_CD_BIG_ENDIAN : 0);
  cd_values[GPUFI_CD_AT_RAW_NBYTES] = (unsigned int)raw_nbytes;
  cd_values[GPUFI_CD_AT_NDIM] = (unsigned int)shape->ndim;
  for (int32_t a = 0; a < shape->ndim; a++) {
    cd_values[GPUFI_CD_AT_DIMS + a] = shape->dims[a];
  }
  return GPUFI_CD_AT_DIMS + (size_t)shape->ndim;
}

static gpuf_status read_parameters(size_t count, const unsigned int *cd_values, parameters *p,
                                   gpuf_error *err) {
  memset(p, 0, sizeof(*p));
  if (count < GPUFI_CD_AT_DIMS) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%zu cd_values are too few to encode with; the libhdf5 at work exports no "
                      "symbols to fill them in (a static one?), so pass them: 0, dtype code, "
                      "chunk bytes, rank, chunk dimensions",
                      count);
  }
  if (cd_values[GPUFI_CD_AT_VERSION] != GPUFI_CD_VERSION) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "cd_values[0] = %u: this gpufetch writes layout %d of cd_values",
                      cd_values[GPUFI_CD_AT_VERSION], GPUFI_CD_VERSION);
  }
  const unsigned int ndim = cd_values[GPUFI_CD_AT_NDIM];
  if (ndim < 1 || ndim > GPUFI_CODEC_NDIM_MAX || count != GPUFI_CD_AT_DIMS + (size_t)ndim) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "cd_values[%d] = %u: not a rank of 1 to %d that fits a count of %zu",
                      GPUFI_CD_AT_NDIM, ndim, GPUFI_CODEC_NDIM_MAX, count);
  }
  const unsigned int dtype = cd_values[GPUFI_CD_AT_DTYPE];
  p->big_endian = (dtype & GPUFI_CD_BIG_ENDIAN) != 0;
  p->shape.dtype = (gpuf_dtype)(dtype & ~GPUFI_CD_BIG_ENDIAN);
  p->shape.ndim = (int32_t)ndim;
  memcpy(p->shape.dims, cd_values + GPUFI_CD_AT_DIMS, ndim * sizeof(uint32_t));
  const gpuf_status status = gpufi_chunk_raw_nbytes(&p->shape, &p->raw_nbytes, err);
  if (status == GPUF_OK && p->raw_nbytes != cd_values[GPUFI_CD_AT_RAW_NBYTES]) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "cd_values[%d] = %u: the chunk dimensions give %zu bytes",
                      GPUFI_CD_AT_RAW_NBYTES, cd_values[GPUFI_CD_AT_RAW_NBYTES], p->raw_nbytes);
  }
  return status;
}

/* --- the encoder's scratch --- */

#define SCRATCH_ALIGNMENT 64 /* a power of two */
#define SPARE_NBYTES_MAX ((size_t)16 << 20)

/* Memory for an encoder, of `capacity` bytes from its first aligned address on. */
typedef struct scratch {
  size_t capacity;
} scratch;

/* What the chunk before has left for the next one: without it, most allocators would go to the
 * system for each chunk, and new pages may take longer than to encode it. Chunks that several
 * threads encode at a time have scratches of their own, of which one is left. */
static _Atomic(scratch *) spare;

/* The first aligned address; Windows has no aligned_alloc. */
static void *aligned(scratch *s) {
  char *const begin = (char *)(s + 1);
  const size_t past = (uintptr_t)begin & (SCRATCH_ALIGNMENT - 1);
  return begin + (SCRATCH_ALIGNMENT - past);
}

/* Null if there is no memory. */
static scratch *take_scratch(size_t nbytes) {
  scratch *s = atomic_exchange(&spare, NULL);
  if (s == NULL || s->capacity < nbytes) {
    free(s);
    s = malloc(sizeof(*s) + SCRATCH_ALIGNMENT + nbytes);
    if (s != NULL) {
      s->capacity = nbytes;
    }
  }
  return s;
}

static void give_back(scratch *s) {
  if (s != NULL && s->capacity <= SPARE_NBYTES_MAX) {
    s = atomic_exchange(&spare, s);
  }
  free(s);
}

/* When the plugin is unloaded, which may be before the process ends. */
__attribute__((destructor)) static void free_spare(void) {
  free(atomic_exchange(&spare, NULL));
}

/* Both directions give a new buffer of *out_capacity bytes, and the bytes used. */
static gpuf_status encode_chunk(size_t cd_count, const unsigned int *cd_values, const void *raw,
                                size_t nbytes, void **out, size_t *out_capacity, size_t *out_nbytes,
                                gpuf_error *err) {
  parameters p;
  gpuf_status status = read_parameters(cd_count, cd_values, &p, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (p.raw_nbytes != nbytes) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the chunk holds %zu bytes but cd_values say %zu; gpufetch must be the "
                      "first filter, and explicit cd_values must fit the chunk shape",
                      nbytes, p.raw_nbytes);
  }
  const size_t capacity = gpufi_codec_bound(nbytes);
  scratch *const memory = take_scratch(gpufi_codec_scratch_nbytes(&p.shape));
  void *encoded = malloc(capacity);
  if (memory == NULL || encoded == NULL) {
    status =
        gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to encode a chunk of %zu bytes", nbytes);
    goto done;
  }
  status = p.big_endian ? gpufi_codec_encode_big_endian(&p.shape, raw, encoded, capacity,
                                                        out_nbytes, aligned(memory), err)
                        : gpufi_codec_encode(&p.shape, raw, encoded, capacity, out_nbytes,
                                             aligned(memory), err);
done:
  give_back(memory);
  if (status != GPUF_OK) {
    free(encoded);
    return status;
  }
  *out = encoded;
  *out_capacity = capacity;
  return GPUF_OK;
}

/* HDF5 before 2.2 takes whatever a filter gives it for a chunk of the dataset's size, and reads
 * beyond the end of a shorter one. The filter knows that size from cd_values alone. */
static gpuf_status check_raw_nbytes(size_t cd_count, const unsigned int *cd_values,
                                    size_t raw_nbytes, gpuf_error *err) {
  if (cd_count <= GPUFI_CD_AT_RAW_NBYTES || cd_values[GPUFI_CD_AT_VERSION] != GPUFI_CD_VERSION) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "the chunk decodes to %zu bytes, and the dataset has no cd_values of layout "
                      "%d (%zu values) that say how many its chunks have: read it with gpufetch's "
                      "own reader, or store it again",
                      raw_nbytes, GPUFI_CD_VERSION, cd_count);
  }
  return cd_values[GPUFI_CD_AT_RAW_NBYTES] == raw_nbytes
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                          "the chunk decodes to %zu bytes, but the dataset's chunks have %u",
                          raw_nbytes, cd_values[GPUFI_CD_AT_RAW_NBYTES]);
}

static gpuf_status decode_chunk(size_t cd_count, const unsigned int *cd_values, const void *encoded,
                                size_t nbytes, void **out, size_t *out_capacity, size_t *out_nbytes,
                                gpuf_error *err) {
  gpufi_chunk_shape shape;
  size_t raw_nbytes;
  gpuf_status status = gpufi_codec_inspect(encoded, nbytes, &shape, &raw_nbytes, err);
  if (status == GPUF_OK) {
    status = check_raw_nbytes(cd_count, cd_values, raw_nbytes, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  void *raw = malloc(raw_nbytes);
  if (raw == NULL) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to decode a chunk of %zu bytes",
                      raw_nbytes);
  }
  status = gpufi_codec_decode(encoded, nbytes, raw, raw_nbytes, err);
  if (status != GPUF_OK) {
    free(raw);
    return status;
  }
  *out = raw;
  *out_capacity = *out_nbytes = raw_nbytes;
  return GPUF_OK;
}

static size_t run_filter(unsigned int flags, size_t cd_nelmts, const unsigned int *cd_values,
                         size_t nbytes, size_t *buf_size, void **buf) {
  gpuf_error err;
  void *out = NULL;
  size_t out_capacity = 0, out_nbytes = 0;
  const gpuf_status status =
      (flags & H5Z_FLAG_REVERSE)
          ? decode_chunk(cd_nelmts, cd_values, *buf, nbytes, &out, &out_capacity, &out_nbytes, &err)
          : encode_chunk(cd_nelmts, cd_values, *buf, nbytes, &out, &out_capacity, &out_nbytes,
                         &err);
  if (status != GPUF_OK) {
    push_failure(__builtin_return_address(0), &err);
    return 0;
  }
  free(*buf);
  *buf = out;
  *buf_size = out_capacity;
  return out_nbytes;
}

static htri_t can_apply(hid_t dcpl, hid_t type, hid_t space) {
  gpufi_caller caller;
  gpuf_error err;
  if (!gpufi_caller_find(__builtin_return_address(0), &caller)) {
    return 1; /* cannot be known; explicit cd_values decide when the first chunk is encoded */
  }
  if (gpufi_describe_check(&caller, type, &err) != GPUF_OK) {
    push_failure(__builtin_return_address(0), &err);
    return 0;
  }
  return 1;
}

/* Gives the filter these cd_values, under whichever of its ids the property list has it. */
static gpuf_status store_cd_values(const gpufi_caller *caller, hid_t dcpl, size_t cd_count,
                                   const unsigned int *cd_values, gpuf_error *err) {
  const int count = caller->filter_count(dcpl);
  bool found = false;
  for (int i = 0; i < count; i++) {
    unsigned int flags = 0;
    size_t old_count = 0;
    const H5Z_filter_t id =
        caller->get_filter(dcpl, (unsigned)i, &flags, &old_count, NULL, 0, NULL, NULL);
    const bool is_ours = gpufi_filter_has_id(id);
    /* What other filters give, but for shuffle, has no size that is known. */
    if (!found && !is_ours && id != H5Z_FILTER_SHUFFLE) {
      return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                        "filter %d stands before gpufetch, which encodes whole chunks of elements: "
                        "gpufetch must be the first filter of the property list",
                        (int)id);
    }
    if (found && is_ours) {
      return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                        "filter %d stands in the property list behind another gpufetch: leave one "
                        "of them out",
                        (int)id);
    }
    if (found && (id == H5Z_FILTER_NBIT || id == H5Z_FILTER_SCALEOFFSET)) {
      return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                        "filter %d stands behind gpufetch, and would take its bytes for elements: "
                        "leave one of them out",
                        (int)id);
    }
    if (!is_ours) {
      continue;
    }
    if (caller->modify_filter(dcpl, id, flags, cd_count, cd_values) < 0) {
      return gpufi_fail(err, GPUF_ERR_HDF5, 0, "cd_values of filter %d cannot be stored", (int)id);
    }
    found = true;
  }
  return found ? GPUF_OK
               : gpufi_fail(err, GPUF_ERR_HDF5, 0, "the filter is not in the property list");
}

/* Replaces the filter's cd_values by those of the dataset at hand. */
static herr_t set_local(hid_t dcpl, hid_t type, hid_t space) {
  unsigned int cd_values[GPUFI_CD_COUNT_MAX];
  gpufi_chunk_shape shape;
  gpufi_caller caller;
  gpuf_error err;
  bool big_endian;
  if (!gpufi_caller_find(__builtin_return_address(0), &caller)) {
    return 0; /* explicit cd_values stay; without them, encoding says what is missing */
  }
  gpuf_status status = gpufi_describe_chunk(&caller, dcpl, type, &shape, &big_endian, &err);
  if (status == GPUF_OK) {
    const size_t cd_count = gpufi_filter_cd_values(&shape, big_endian, cd_values);
    status = store_cd_values(&caller, dcpl, cd_count, cd_values, &err);
  }
  if (status != GPUF_OK) {
    push_failure(__builtin_return_address(0), &err);
    return -1;
  }
  return 0;
}

#define CLASS(number)                                                                              \
  {                                                                                                \
      .version = H5Z_CLASS_T_VERS,                                                                 \
      .id = (number),                                                                              \
      .encoder_present = 1,                                                                        \
      .decoder_present = 1,                                                                        \
      .name = GPUFI_FILTER_NAME,                                                                   \
      .can_apply = can_apply,                                                                      \
      .set_local = set_local,                                                                      \
      .filter = run_filter,                                                                        \
  },

const void *gpufi_filter_class(size_t index) {
  static const H5Z_class2_t classes[] = {GPUFI_FILTER_IDS(CLASS)};
  return index < sizeof(classes) / sizeof(classes[0]) ? &classes[index] : NULL;
}

#define OR_EQUAL(number) || id == (number)

bool gpufi_filter_has_id(int id) {
  return false GPUFI_FILTER_IDS(OR_EQUAL);
}
