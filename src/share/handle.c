#include "share/handle.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/struct.h"
#include "core/geometry.h"

#define MAGIC 0x48534647u /* "GFSH" */
#define VERSION 1
#define FLAG_READONLY 1u

enum {
  AT_MAGIC = 0,
  AT_VERSION = 4,
  AT_NBYTES = 6,
  AT_CHECKSUM = 8,
  AT_KIND = 16,
  AT_DTYPE = 17,
  AT_NDIM = 18,
  AT_FLAGS = 19,
  AT_DEVICE_INDEX = 20,
  AT_PROCESS_ID = 24,
  AT_START_TIME = 32,
  AT_GENERATION = 40,
  AT_SERVICE = 48,
  AT_TOKEN = 64,
  AT_IDENTITY = 80,
  AT_NAME = 96,
  AT_ALLOCATION_NBYTES = 160,
  AT_OFFSET_NBYTES = 168,
  AT_AXES = 176, /* the shape, then the strides */
};

_Static_assert(AT_AXES + 16 * GPUF_NDIM_MAX == GPUF_SHARE_HANDLE_MAX_NBYTES, "handle layout");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields are copied as they are");

#define PUT(at, value) memcpy(handle->bytes + (at), &(value), sizeof(value))
#define GET(at, value) memcpy(&(value), handle->bytes + (at), sizeof(value))

/* FNV-1a over all bytes but the checksum's own. It only finds accidents; against forgery the
 * exporter compares whole handles. */
static uint64_t checksum(const gpuf_share_handle *handle) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (uint32_t i = 0; i < handle->nbytes; i++) {
    if (i < AT_CHECKSUM || i >= AT_CHECKSUM + 8) {
      sum = (sum ^ handle->bytes[i]) * 0x100000001b3u;
    }
  }
  return sum;
}

void gpufi_share_seal(gpuf_share_handle *handle) {
  const uint64_t sum = checksum(handle);
  PUT(AT_CHECKSUM, sum);
}

void gpufi_share_encode(const gpufi_share_fields *fields, gpuf_share_handle *handle) {
  const gpuf_tensor *tensor = &fields->tensor;
  const size_t axes_nbytes = (size_t)tensor->ndim * 8;
  const uint32_t magic = MAGIC;
  const uint16_t version = VERSION, nbytes = (uint16_t)(AT_AXES + 2 * axes_nbytes);
  memset(handle, 0, sizeof(*handle));
  handle->nbytes = nbytes;
  PUT(AT_MAGIC, magic);
  PUT(AT_VERSION, version);
  PUT(AT_NBYTES, nbytes);
  handle->bytes[AT_KIND] = (uint8_t)tensor->device.kind;
  handle->bytes[AT_DTYPE] = (uint8_t)tensor->dtype;
  handle->bytes[AT_NDIM] = (uint8_t)tensor->ndim;
  handle->bytes[AT_FLAGS] = fields->readonly ? FLAG_READONLY : 0;
  PUT(AT_DEVICE_INDEX, tensor->device.index);
  PUT(AT_PROCESS_ID, fields->process_id);
  PUT(AT_START_TIME, fields->start_time);
  PUT(AT_GENERATION, fields->generation);
  PUT(AT_SERVICE, fields->service);
  PUT(AT_TOKEN, fields->token);
  PUT(AT_IDENTITY, fields->identity);
  PUT(AT_NAME, fields->name);
  PUT(AT_ALLOCATION_NBYTES, fields->allocation_nbytes);
  PUT(AT_OFFSET_NBYTES, fields->offset_nbytes);
  memcpy(handle->bytes + AT_AXES, tensor->shape, axes_nbytes);
  memcpy(handle->bytes + AT_AXES + axes_nbytes, tensor->strides_nbytes, axes_nbytes);
  gpufi_share_seal(handle);
}

static gpuf_status check_envelope(const gpuf_share_handle *handle, gpuf_error *err) {
  uint32_t magic;
  uint16_t version, nbytes;
  uint64_t sum;
  if (handle->nbytes < AT_AXES || handle->nbytes > GPUF_SHARE_HANDLE_MAX_NBYTES) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "a share handle of %" PRIu32 " bytes; it has %d to %d: copy all of it",
                      handle->nbytes, (int)AT_AXES, GPUF_SHARE_HANDLE_MAX_NBYTES);
  }
  GET(AT_MAGIC, magic);
  GET(AT_VERSION, version);
  GET(AT_NBYTES, nbytes);
  GET(AT_CHECKSUM, sum);
  if (magic != MAGIC) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "not a share handle: it begins with 0x%08" PRIx32 "; pass what gpuf_share "
                      "gave",
                      magic);
  }
  if (version != VERSION) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the share handle has version %u and this gpufetch knows %d; use the same "
                      "gpufetch in both processes",
                      version, VERSION);
  }
  if (nbytes != handle->nbytes || nbytes != AT_AXES + 16 * handle->bytes[AT_NDIM]) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the share handle has %" PRIu32 " bytes and says %u for %u axes; copy all "
                      "of it",
                      handle->nbytes, nbytes, handle->bytes[AT_NDIM]);
  }
  if (sum != checksum(handle)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the share handle was altered: its checksum does not match; copy it again");
  }
  return GPUF_OK;
}

/* Check that every element lies inside the allocation. The tensor's extent is known not to
 * overflow. */
static gpuf_status check_inside(const gpufi_share_fields *fields, gpuf_error *err) {
  const gpuf_tensor *tensor = &fields->tensor;
  size_t below_nbytes, above_nbytes;
  gpufi_tensor_reach(tensor, &below_nbytes, &above_nbytes);
  if (fields->allocation_nbytes > PTRDIFF_MAX ||
      fields->offset_nbytes > fields->allocation_nbytes || below_nbytes > fields->offset_nbytes ||
      above_nbytes > fields->allocation_nbytes - fields->offset_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the share handle describes elements outside their allocation of %" PRIu64
                      " bytes (offset %" PRIu64 ", %zu below it and %zu above)",
                      fields->allocation_nbytes, fields->offset_nbytes, below_nbytes, above_nbytes);
  }
  return GPUF_OK;
}

static gpuf_status check_fields(const gpufi_share_fields *fields, uint8_t flags, gpuf_error *err) {
  gpuf_tensor tensor = fields->tensor;
  gpuf_error inner;
  if (tensor.device.kind != GPUF_DEVICE_CUDA && tensor.device.kind != GPUF_DEVICE_HOST) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "the share handle names device kind %d",
                      (int)tensor.device.kind);
  }
  if (tensor.device.index < 0 || fields->process_id <= 0 || fields->generation == 0 ||
      (flags & ~FLAG_READONLY) != 0) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the share handle has device index %" PRId32 ", process %" PRId64
                      ", generation %" PRIu64 " and flags %u, which no exporter writes",
                      tensor.device.index, fields->process_id, fields->generation, flags);
  }
  tensor.data = &tensor; /* any pointer but NULL: an attachment will have an address */
  if (gpuf_tensor_check(&tensor, &inner) != GPUF_OK) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "the share handle describes no tensor: %.900s",
                      inner.message);
  }
  return check_inside(fields, err);
}

gpuf_status gpufi_share_decode(const gpuf_share_handle *handle, gpufi_share_fields *fields,
                               gpuf_error *err) {
  GPUFI_REQUIRE(handle, err);
  gpufi_share_fields f = {0};
  gpuf_status status = check_envelope(handle, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (handle->bytes[AT_NDIM] > GPUF_NDIM_MAX) { /* the size, checked above, allows no more */
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "%u axes", handle->bytes[AT_NDIM]);
  }
  f.tensor.device.kind = (gpuf_device_kind)handle->bytes[AT_KIND];
  f.tensor.dtype = (gpuf_dtype)handle->bytes[AT_DTYPE];
  f.tensor.ndim = handle->bytes[AT_NDIM];
  f.readonly = handle->bytes[AT_FLAGS] & FLAG_READONLY;
  GET(AT_DEVICE_INDEX, f.tensor.device.index);
  GET(AT_PROCESS_ID, f.process_id);
  GET(AT_START_TIME, f.start_time);
  GET(AT_GENERATION, f.generation);
  GET(AT_SERVICE, f.service);
  GET(AT_TOKEN, f.token);
  GET(AT_IDENTITY, f.identity);
  GET(AT_NAME, f.name);
  GET(AT_ALLOCATION_NBYTES, f.allocation_nbytes);
  GET(AT_OFFSET_NBYTES, f.offset_nbytes);
  const size_t axes_nbytes = (size_t)f.tensor.ndim * 8;
  memcpy(f.tensor.shape, handle->bytes + AT_AXES, axes_nbytes);
  memcpy(f.tensor.strides_nbytes, handle->bytes + AT_AXES + axes_nbytes, axes_nbytes);
  status = check_fields(&f, handle->bytes[AT_FLAGS], err);
  if (status == GPUF_OK && fields) {
    *fields = f;
  }
  return status;
}

gpuf_status gpuf_share_describe(const gpuf_share_handle *handle, gpuf_share_info *info,
                                gpuf_error *err) {
  gpufi_share_fields fields;
  gpuf_status status = gpufi_struct_check(info, sizeof(*info), "GPUF_SHARE_INFO_INIT", err);
  if (status == GPUF_OK) {
    status = gpufi_share_decode(handle, &fields, err);
  }
  if (status == GPUF_OK) {
    const gpuf_share_info own = {.tensor = fields.tensor,
                                 .allocation_nbytes = (size_t)fields.allocation_nbytes,
                                 .offset_nbytes = (size_t)fields.offset_nbytes,
                                 .generation = fields.generation,
                                 .process_id = fields.process_id,
                                 .readonly = fields.readonly};
    gpufi_struct_write(info, &own, sizeof(own));
  }
  return status;
}
