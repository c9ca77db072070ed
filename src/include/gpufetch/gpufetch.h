/* gpufetch: move arrays out of GPU memory, fast.
 *
 * The core: devices, streams, tensor descriptors, the pinned pool, and chunked
 * asynchronous copies between device and host memory.
 *
 * Conventions, for every function here and in the other public headers:
 *   - A fallible call returns gpuf_status and takes a nullable gpuf_error last.
 *     On failure the error holds the values that matter and the remedy, and
 *     output parameters are untouched unless said otherwise.
 *   - Sizes are bytes and end in `_nbytes`; counts end in `_count`.
 *   - A struct that may get members later begins with `struct_nbytes`. Initialize it with its macro
 *     (gpuf_copy_options: GPUF_COPY_OPTIONS_INIT) before a call, also where the call fills it; then
 *     a program that was compiled against an older header runs with a newer library. A newer
 *     struct than the library knows is accepted while its newer members are zero, their default,
 *     and is GPUF_ERR_UNSUPPORTED otherwise; one whose struct_nbytes is not set, GPUF_ERR_INVALID.
 *   - `d_` marks a device pointer: the host must not dereference it.
 *   - Every function may be called from any thread. An object passed to a call
 *     must not be destroyed by another thread during that call; further limits
 *     are stated with the type.
 *   - Nothing here prints, exits, or installs handlers.
 *   - After fork() in a process that has used a device, every call that would
 *     touch a device fails with GPUF_ERR_STATE in the child.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef GPUFETCH_GPUFETCH_H
#define GPUFETCH_GPUFETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(GPUFETCH_STATIC)
#define GPUF_API
#else
#define GPUF_API __attribute__((visibility("default")))
#endif

/* --- Version ------------------------------------------------------------- */

#define GPUF_VERSION_MAJOR 0
#define GPUF_VERSION_MINOR 1
#define GPUF_VERSION_PATCH 0

/* True if this header is of version major.minor or newer: #if GPUF_VERSION_AT_LEAST(0, 2). */
#define GPUF_VERSION_AT_LEAST(major, minor)                                                        \
  (GPUF_VERSION_MAJOR > (major) || (GPUF_VERSION_MAJOR == (major) && GPUF_VERSION_MINOR >= (minor)))

/* "major.minor.patch" of the library that is loaded; static storage. */
GPUF_API const char *gpuf_version(void);

/* --- Status and error ---------------------------------------------------- */

typedef enum gpuf_status {
  GPUF_OK = 0,
  GPUF_ERR_INVALID = 1,     /* an argument is out of range or does not fit another */
  GPUF_ERR_UNSUPPORTED = 2, /* valid, but not offered: the message names what to do instead */
  GPUF_ERR_NO_MEMORY = 3,   /* host memory, pinned or pageable */
  GPUF_ERR_NO_DEVICE_MEMORY = 4,
  GPUF_ERR_NO_DEVICE = 5, /* no driver, no such device, or built without the backend */
  GPUF_ERR_DEVICE = 6,    /* a device call failed; native_code is the backend's own code */
  GPUF_ERR_HDF5 = 7,      /* an HDF5 call failed; the message quotes HDF5's error stack */
  GPUF_ERR_IO = 8,        /* a system call failed; native_code is errno */
  GPUF_ERR_CORRUPT = 9,   /* bytes from a file or a peer are not what they claim to be */
  GPUF_ERR_STATE = 10,    /* called at a wrong time: after fork, closed, twice */
  GPUF_ERR_TIMEOUT = 11,
} gpuf_status;

/* Name of a status ("GPUF_ERR_INVALID"); static storage, never NULL. */
GPUF_API const char *gpuf_status_name(gpuf_status status);

#define GPUF_ERROR_MESSAGE_NBYTES 1024

/* Filled on failure. Caller-owned; plain value; nothing to free. */
typedef struct gpuf_error {
  gpuf_status status;
  int64_t native_code; /* cudaError_t or errno where one caused the failure, else 0 */
  char message[GPUF_ERROR_MESSAGE_NBYTES]; /* UTF-8, NUL-terminated */
} gpuf_error;

/* --- Devices ------------------------------------------------------------- */

typedef enum gpuf_device_kind {
  GPUF_DEVICE_CPU = 0,  /* memory that the host may touch: a NumPy array, malloc */
  GPUF_DEVICE_CUDA = 1, /* an NVIDIA GPU */
  GPUF_DEVICE_HOST = 2, /* the host backend: a fake GPU whose memory the host may not touch */
} gpuf_device_kind;

typedef struct gpuf_device {
  gpuf_device_kind kind;
  int32_t index;
} gpuf_device;

typedef struct gpuf_device_info {
  size_t struct_nbytes;
  char name[256];
  size_t total_nbytes;              /* device memory */
  size_t free_nbytes;               /* device memory, at the time of the call */
  int32_t compute_capability_major; /* 0 on the host backend */
  int32_t compute_capability_minor;
  int32_t driver_version;  /* as CUDA writes it, 13000 = 13.0; 0 on the host backend */
  int32_t runtime_version; /* of the cudart inside gpufetch; 0 on the host backend */
} gpuf_device_info;

#define GPUF_DEVICE_INFO_INIT {sizeof(gpuf_device_info), {0}, 0, 0, 0, 0, 0, 0}

/* "cpu", "cuda" or "host"; static storage. */
GPUF_API const char *gpuf_device_kind_name(gpuf_device_kind kind);

/* Number of devices of `kind` (GPUF_DEVICE_CUDA or GPUF_DEVICE_HOST). Fails with
 * GPUF_ERR_NO_DEVICE and the reason where there is none. */
GPUF_API gpuf_status gpuf_device_count(gpuf_device_kind kind, int32_t *count, gpuf_error *err);

GPUF_API gpuf_status gpuf_device_get_info(gpuf_device device, gpuf_device_info *info,
                                          gpuf_error *err);

/* The device that is used where none is named: by the environment variable
 * GPUFETCH_BACKEND = cuda | host | auto (the default: cuda if a GPU answers, else host),
 * index 0. Read once per process. */
GPUF_API gpuf_status gpuf_device_default(gpuf_device *device, gpuf_error *err);

/* The device whose memory `d_ptr` points into, managed memory's too, whoever allocated it.
 * GPUF_ERR_INVALID for any other pointer. */
GPUF_API gpuf_status gpuf_device_of(const void *d_ptr, gpuf_device *device, gpuf_error *err);

/* Device memory, aligned to 256 bytes or more. `nbytes` 0 gives NULL. Contents are
 * indeterminate (the host backend fills them with a poison pattern).
 * gpuf_free waits for work in flight that may use the memory; NULL is allowed. On CUDA it keeps
 * blocks of 1 MiB or more for the next gpuf_alloc of their size, 2 GiB in all (or the environment
 * variable GPUFETCH_DEVICE_KEEP_MAX_NBYTES); a gpuf_alloc that finds no memory, and
 * gpuf_device_trim, give them back to the driver. gpuf_device_trim also frees what reductions and
 * the codec keep between calls. Any thread. */
GPUF_API gpuf_status gpuf_alloc(gpuf_device device, size_t nbytes, void **d_ptr, gpuf_error *err);
GPUF_API gpuf_status gpuf_free(gpuf_device device, void *d_ptr, gpuf_error *err);
GPUF_API void gpuf_device_trim(void);

/* --- Streams ------------------------------------------------------------- */

/* A stream handle, in the convention of the CUDA Array Interface: on a CUDA device any
 * cudaStream_t cast to uintptr_t; on the host backend what gpuf_stream_create gave. */
typedef uintptr_t gpuf_stream;

#define GPUF_STREAM_NONE ((gpuf_stream)0)       /* no work is pending: nothing to wait for */
#define GPUF_STREAM_LEGACY ((gpuf_stream)1)     /* the device's default stream */
#define GPUF_STREAM_PER_THREAD ((gpuf_stream)2) /* the per-thread default stream */

/* A non-blocking stream: it does not wait for the default stream, nor that for it. */
GPUF_API gpuf_status gpuf_stream_create(gpuf_device device, gpuf_stream *stream, gpuf_error *err);
/* Waits for the stream's work first. GPUF_STREAM_NONE is allowed. */
GPUF_API gpuf_status gpuf_stream_destroy(gpuf_device device, gpuf_stream stream, gpuf_error *err);
/* Blocks until the work enqueued so far is done; reports a failure of any of it. */
GPUF_API gpuf_status gpuf_stream_synchronize(gpuf_device device, gpuf_stream stream,
                                             gpuf_error *err);

/* Host backend only: run `kernel(args)` on the stream, in order with its other work, on the
 * stream's own thread. `args` is copied (`args_nbytes` at most 1008) before the call returns.
 * This is how a program writes the host twin of a CUDA kernel. */
GPUF_API gpuf_status gpuf_host_launch(gpuf_device device, gpuf_stream stream,
                                      void (*kernel)(const void *args), const void *args,
                                      size_t args_nbytes, gpuf_error *err);

/* Host backend only: the address at which a running kernel may touch the device memory at
 * `d_ptr`. NULL outside a kernel that gpuf_host_launch runs, and for a pointer that is not into
 * a live allocation of the host backend. */
GPUF_API void *gpuf_host_pointer(const void *d_ptr);

/* --- Element types ------------------------------------------------------- */

/* Values are part of the chunk format (docs/format.md) and never change. */
typedef enum gpuf_dtype {
  GPUF_DTYPE_BOOL = 1, /* one byte, 0 or 1 */
  GPUF_DTYPE_INT8 = 2,
  GPUF_DTYPE_INT16 = 3,
  GPUF_DTYPE_INT32 = 4,
  GPUF_DTYPE_INT64 = 5,
  GPUF_DTYPE_UINT8 = 6,
  GPUF_DTYPE_UINT16 = 7,
  GPUF_DTYPE_UINT32 = 8,
  GPUF_DTYPE_UINT64 = 9,
  GPUF_DTYPE_FLOAT16 = 10,
  GPUF_DTYPE_BFLOAT16 = 11,
  GPUF_DTYPE_FLOAT32 = 12,
  GPUF_DTYPE_FLOAT64 = 13,
  GPUF_DTYPE_COMPLEX64 = 14,
  GPUF_DTYPE_COMPLEX128 = 15,
  GPUF_DTYPE_FLOAT8_E3M4 = 16,
  GPUF_DTYPE_FLOAT8_E4M3 = 17,
  GPUF_DTYPE_FLOAT8_E4M3B11FNUZ = 18,
  GPUF_DTYPE_FLOAT8_E4M3FN = 19,
  GPUF_DTYPE_FLOAT8_E4M3FNUZ = 20,
  GPUF_DTYPE_FLOAT8_E5M2 = 21,
  GPUF_DTYPE_FLOAT8_E5M2FNUZ = 22,
  GPUF_DTYPE_FLOAT8_E8M0FNU = 23,
} gpuf_dtype;

#define GPUF_DTYPE_MAX GPUF_DTYPE_FLOAT8_E8M0FNU

/* NumPy's (or ml_dtypes') name: "float32", "bfloat16", "float8_e4m3fn". "unknown" for a value
 * outside the enumeration. Static storage. */
GPUF_API const char *gpuf_dtype_name(gpuf_dtype dtype);
/* Size of one element; 0 for a value outside the enumeration. */
GPUF_API size_t gpuf_dtype_nbytes(gpuf_dtype dtype);

/* --- Tensors ------------------------------------------------------------- */

#define GPUF_NDIM_MAX 32

/* Describes elements in memory that someone else owns. A plain value: copy it freely. The
 * memory must stay valid until every call and future that was given the descriptor is done. */
typedef struct gpuf_tensor {
  void *data; /* element [0, ..., 0], any byte offset already added; device or host pointer */
  gpuf_device device;
  gpuf_dtype dtype;
  int32_t ndim;                          /* 0 (one element) to GPUF_NDIM_MAX */
  int64_t shape[GPUF_NDIM_MAX];          /* each >= 0 */
  int64_t strides_nbytes[GPUF_NDIM_MAX]; /* signed; 0 repeats an element */
  gpuf_stream stream; /* stream with pending work on the memory, or GPUF_STREAM_NONE */
} gpuf_tensor;

/* Describe C-contiguous elements at `data`; checks ndim, the shape and that the byte size fits
 * ptrdiff_t. stream is set to GPUF_STREAM_NONE. `shape` may be NULL when ndim is 0. */
GPUF_API gpuf_status gpuf_tensor_init(gpuf_tensor *tensor, void *data, gpuf_device device,
                                      gpuf_dtype dtype, int32_t ndim, const int64_t *shape,
                                      gpuf_error *err);

/* Check a descriptor that was filled by hand: dtype, ndim, shape, overflow of the extent, a NULL
 * pointer with elements, a device kind that exists. Every call below does this itself. */
GPUF_API gpuf_status gpuf_tensor_check(const gpuf_tensor *tensor, gpuf_error *err);

/* Number of elements; product of the shape (1 when ndim is 0). */
GPUF_API int64_t gpuf_tensor_count(const gpuf_tensor *tensor);
/* gpuf_tensor_count × element size: what a packed copy takes, not the extent in memory. */
GPUF_API size_t gpuf_tensor_nbytes(const gpuf_tensor *tensor);
/* True if the elements are packed in C order (vacuously for fewer than two elements). */
GPUF_API bool gpuf_tensor_is_contiguous(const gpuf_tensor *tensor);

/* Narrow `axis` (0 .. ndim-1) to the `count` indices start, start+step, ...; `step` may be
 * negative. Works in place; fails without change if an index falls outside the axis. */
GPUF_API gpuf_status gpuf_tensor_slice(gpuf_tensor *tensor, int32_t axis, int64_t start,
                                       int64_t step, int64_t count, gpuf_error *err);

/* --- Pinned pool --------------------------------------------------------- */

/* Page-locked host memory that any device can transfer to at link speed. Blocks come from a
 * process-wide pool and go back to it; nothing is torn down at exit. */
typedef struct gpuf_pool_stats {
  size_t struct_nbytes;
  size_t cap_nbytes;      /* limit on reserved_nbytes */
  size_t reserved_nbytes; /* pinned now: in use or ready for reuse */
  size_t used_nbytes;     /* handed out now */
  size_t peak_used_nbytes;
  uint64_t hit_count;  /* acquisitions served without pinning anything new */
  uint64_t miss_count; /* acquisitions that pinned memory */
} gpuf_pool_stats;

#define GPUF_POOL_STATS_INIT {sizeof(gpuf_pool_stats), 0, 0, 0, 0, 0, 0}

/* Take a block of at least `nbytes` (> 0) for transfers with `device`. Aligned to 4096 bytes from
 * 4096 bytes up, to 64 below; contents indeterminate. GPUF_ERR_NO_MEMORY when the cap would be
 * exceeded or the system has no more. Release with gpuf_pool_release (NULL is allowed), from any
 * thread, once no transfer uses the block. */
GPUF_API gpuf_status gpuf_pool_acquire(gpuf_device device, size_t nbytes, void **ptr,
                                       gpuf_error *err);
/* As gpuf_pool_acquire, for the destination of one copy that the program then keeps. A large block
 * that the pool has just mapped is not page-locked yet: gpuf_copy fills it through staging
 * buffers, which is quicker than page-locking it first. It is page-locked when the pool hands it
 * out again. */
GPUF_API gpuf_status gpuf_pool_acquire_result(gpuf_device device, size_t nbytes, void **ptr,
                                              gpuf_error *err);
GPUF_API void gpuf_pool_release(void *ptr);
GPUF_API gpuf_status gpuf_pool_get_stats(gpuf_pool_stats *stats, gpuf_error *err);
/* Give unused blocks back to the system until at most `keep_nbytes` stay reserved. */
GPUF_API void gpuf_pool_trim(size_t keep_nbytes);
/* Change the cap (default: a quarter of physical memory, or the environment variable
 * GPUFETCH_POOL_MAX_NBYTES). Blocks in use stay; unused ones are trimmed to fit. */
GPUF_API void gpuf_pool_set_cap(size_t cap_nbytes);

/* --- Copies -------------------------------------------------------------- */

/* How elements cross from a device to the CPU. The result is the same, bit for bit. */
typedef enum gpuf_via {
  GPUF_VIA_AUTO = 0,  /* as the link: no measurement has the codec ahead of it */
  GPUF_VIA_LINK = 1,  /* as they are */
  GPUF_VIA_CODEC = 2, /* encoded on the device, decoded by threads: see gpuf_copy_async */
} gpuf_via;

typedef struct gpuf_copy_options {
  size_t struct_nbytes;
  size_t piece_nbytes;  /* of each transfer; 0 = chosen by the library */
  int32_t thread_count; /* threads that drain staging buffers or decode, at most 64; 0 = chosen by
                           the library */
  bool cast;            /* dtypes may differ: see gpuf_copy_async */
  gpuf_via via;         /* GPUF_VIA_CODEC: from a device only */
} gpuf_copy_options;

#define GPUF_COPY_OPTIONS_INIT {sizeof(gpuf_copy_options), 0, 0, false, GPUF_VIA_AUTO}

/* A copy in flight. wait and done may be called from several threads at once; destroy must be
 * the last call. */
typedef struct gpuf_future gpuf_future;

/* Start copying every element of `src` to the same index of `dst`. Shapes and dtypes must be
 * equal; layouts may differ. One of the two is on a device and the other on the CPU, or both
 * are on the CPU. The copy starts after the work that is pending on src->stream and dst->stream.
 * Both memories must stay valid, `src` unchanged and `dst` unread, until the future is done.
 *   - A CPU side that came from gpuf_pool_acquire and is contiguous is transferred in place;
 *     any other is staged through pinned chunks by several threads.
 *   - Which order of the axes both sides are in does not matter: two arrays that lie in memory
 *     alike, in Fortran order say, are copied flat.
 *   - A device side that is not contiguous travels as rows where those are wide, and is packed on
 *     the device otherwise, through scratch: at most 64 MiB a device in all (or the environment
 *     variable GPUFETCH_SCRATCH_MAX_NBYTES), however large the tensors.
 *   - With options->cast, elements of `src` are converted to the dtype of `dst`, from any real
 *     dtype to any but float8_e8m0fnu, as NumPy's and ml_dtypes' astype do: to floats by rounding
 *     to nearest, ties to even; to bool, true for what is not 0; between integers modulo 2^bits.
 *     A float that the integer type cannot hold gives an unspecified integer; a NaN stays one, but
 *     not its payload. Where one side is on a device, that device converts, by way of scratch:
 *     elements of the CPU side's dtype travel.
 *   - With options->via GPUF_VIA_CODEC, the source's device encodes (docs/codec.md) and threads of
 *     the CPU decode into any layout, by default one a processor: for a link that is slower than
 *     they are. Takes up to 140 MiB of the device's memory and 70 MiB of pinned memory besides; for
 *     chunks of 32 MiB, the longest that there are, twice that. Chunks that the device leaves to
 *     the CPU to encode cross as they are. Between two CPU sides it changes nothing; to a device it
 *     is GPUF_ERR_UNSUPPORTED.
 * `options` may be NULL. On failure to start, nothing is in flight and *future is NULL. */
GPUF_API gpuf_status gpuf_copy_async(const gpuf_tensor *dst, const gpuf_tensor *src,
                                     const gpuf_copy_options *options, gpuf_future **future,
                                     gpuf_error *err);

/* gpuf_copy_async, then wait. If the copy fails, `dst` is partly written. */
GPUF_API gpuf_status gpuf_copy(const gpuf_tensor *dst, const gpuf_tensor *src,
                               const gpuf_copy_options *options, gpuf_error *err);

/* gpuf_copy for `count` pairs in one call: dsts[i] from srcs[i]. Much faster than a loop where many
 * are small: what is contiguous on the device and in pool blocks travels together, and devices
 * work side by side. Each pair may have its own device and direction. No destination may overlap
 * another tensor.
 *   - Where dsts[i] ends in a pool block short of a multiple of 64 bytes and the next destination
 *     begins at that multiple, the bytes between the two become indeterminate.
 *   - The error names the index of the pair that failed, or of the first and last pair of those
 *     that travelled together. All work has ended by then; any destination may be partly
 *     written. */
GPUF_API gpuf_status gpuf_copy_many(const gpuf_tensor *dsts, const gpuf_tensor *srcs, size_t count,
                                    const gpuf_copy_options *options, gpuf_error *err);

/* Block until the copy is done or failed and report which, the same at every call.
 * `timeout_ns` < 0 waits for ever; otherwise GPUF_ERR_TIMEOUT leaves the copy running. */
GPUF_API gpuf_status gpuf_future_wait(gpuf_future *future, int64_t timeout_ns, gpuf_error *err);
/* True once gpuf_future_wait would return at once. */
GPUF_API bool gpuf_future_done(gpuf_future *future);
/* Waits for the copy if it still runs, then frees the future. NULL is allowed. */
GPUF_API void gpuf_future_destroy(gpuf_future *future);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_GPUFETCH_H */
