/* gpufetch: move arrays out of GPU memory, fast.
 *
 * This header has devices, streams, tensor descriptors, the pool of page-locked host memory, and
 * copies between device and host memory. reduce.h, hdf5.h, share.h and serve.h build on it.
 *
 * Conventions of all public headers:
 *
 *   - A call that can fail returns gpuf_status and takes a gpuf_error last, which may be NULL.
 * After a failure the error says which value was wrong and what to do, and output parameters are
 *     unchanged unless the call's description says otherwise.
 *   - A pointer argument must not be NULL unless the call's description allows it; a call that can
 *     fail returns GPUF_ERR_INVALID for it.
 *   - Sizes are in bytes and their names end in `_nbytes`; the names of counts end in `_count`.
 *   - `d_` marks a device pointer, which the host must not dereference.
 *   - A struct that may get members later begins with `struct_nbytes`. Initialize it with its macro
 *     (GPUF_COPY_OPTIONS_INIT for gpuf_copy_options), also where the call fills it in. A program
 *     that was compiled against an older header then works with a newer library: the members that
 *     it lacks have their defaults. In the other direction, members that the library does not know
 *     must be zero, which is their default; otherwise the call returns GPUF_ERR_UNSUPPORTED. A
 *     struct whose struct_nbytes is not set gives GPUF_ERR_INVALID.
 *   - Every function may be called from any thread. No thread may destroy an object while another
 *     passes it to a call. Further limits are stated with the type.
 *   - A thread must not be cancelled (pthread_cancel) while it is in a call: nobody would give back
 *     what the call holds, and later calls could wait for it for ever. Disable cancellation around
 *     calls with pthread_setcancelstate.
 *   - The library does not print, does not exit, and installs no signal handlers. A signal that the
 *     program handles neither ends a call early nor puts off its deadline.
 *   - Results do not depend on the calling thread's floating-point environment: how it rounds,
 *     whether it flushes subnormal numbers to zero (as a program linked with -ffast-math does), and
 *     which exceptions it traps. A call leaves that environment as it is, and raises no flag and no
 *     trap for the numbers that it works on. HDF5, where a call uses it, computes in the caller's.
 *   - A forked child may make every call that needs host memory alone, though its parent has used a
 *     device and whatever the parent's threads were doing: it reads and writes files and copies
 *     between arrays. Devices, and copies, shares and servers of the parent, are refused there with
 *     GPUF_ERR_STATE: start workers with spawn or forkserver.
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

/* Tells the compiler that a call does not read through its pointer argument `index`. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define GPUF_NOT_READ(index) __attribute__((access(none, index)))
#else
#define GPUF_NOT_READ(index)
#endif

/* --- Version ------------------------------------------------------------- */

#define GPUF_VERSION_MAJOR 0
#define GPUF_VERSION_MINOR 1
#define GPUF_VERSION_PATCH 0

/* True if this header is of version major.minor or newer: #if GPUF_VERSION_AT_LEAST(0, 2). */
#define GPUF_VERSION_AT_LEAST(major, minor)                                                        \
  (GPUF_VERSION_MAJOR > (major) || (GPUF_VERSION_MAJOR == (major) && GPUF_VERSION_MINOR >= (minor)))

/* The version of the library that is loaded, as "major.minor.patch", in static storage. */
GPUF_API const char *gpuf_version(void);

/* --- Status and error ---------------------------------------------------- */

typedef enum gpuf_status {
  GPUF_OK = 0,
  GPUF_ERR_INVALID = 1,     /* an argument is out of range or does not fit another */
  GPUF_ERR_UNSUPPORTED = 2, /* valid, but not offered: the message names what to do instead */
  GPUF_ERR_NO_MEMORY = 3,   /* no host memory, page-locked or pageable, or no thread */
  GPUF_ERR_NO_DEVICE_MEMORY = 4,
  GPUF_ERR_NO_DEVICE = 5, /* no driver, no such device, or built without the backend */
  GPUF_ERR_DEVICE = 6,    /* a device call failed; native_code is the backend's own code */
  GPUF_ERR_HDF5 = 7,      /* an HDF5 call failed; the message quotes HDF5's error stack */
  GPUF_ERR_IO = 8,        /* a system call failed; native_code is errno */
  GPUF_ERR_CORRUPT = 9,   /* bytes from a file or a peer are not what they claim to be */
  GPUF_ERR_STATE = 10,    /* the call came at a wrong time: after fork, after a close, twice */
  GPUF_ERR_TIMEOUT = 11,
} gpuf_status;

/* The name of a status, such as "GPUF_ERR_INVALID", in static storage. Never NULL. */
GPUF_API const char *gpuf_status_name(gpuf_status status);

#define GPUF_ERROR_MESSAGE_NBYTES 1024

/* Why a call failed. The caller owns it; there is nothing to free. */
typedef struct gpuf_error {
  gpuf_status status;
  int64_t native_code; /* cudaError_t or errno where one caused the failure, else 0 */
  char message[GPUF_ERROR_MESSAGE_NBYTES]; /* UTF-8, NUL-terminated */
} gpuf_error;

/* --- Devices ------------------------------------------------------------- */

typedef enum gpuf_device_kind {
  GPUF_DEVICE_CPU = 0,  /* memory that the host may touch, such as a NumPy array or malloc's */
  GPUF_DEVICE_CUDA = 1, /* an NVIDIA GPU */
  GPUF_DEVICE_HOST = 2, /* the host backend: a fake GPU whose memory the host may not touch */
} gpuf_device_kind;

typedef struct gpuf_device {
  gpuf_device_kind kind;
  int32_t index; /* from 0 on; the CPU's is 0 */
} gpuf_device;

typedef struct gpuf_device_info {
  size_t struct_nbytes;
  char name[256];
  size_t total_nbytes;              /* of device memory */
  size_t free_nbytes;               /* of device memory, at the time of the call */
  int32_t compute_capability_major; /* 0 on the host backend */
  int32_t compute_capability_minor;
  int32_t driver_version;  /* as CUDA writes it, 13000 = 13.0; 0 on the host backend */
  int32_t runtime_version; /* of the cudart inside gpufetch; 0 on the host backend */
} gpuf_device_info;

#define GPUF_DEVICE_INFO_INIT {sizeof(gpuf_device_info), {0}, 0, 0, 0, 0, 0, 0}

/* "cpu", "cuda" or "host", in static storage. */
GPUF_API const char *gpuf_device_kind_name(gpuf_device_kind kind);

/* The number of devices of `kind`, GPUF_DEVICE_CUDA or GPUF_DEVICE_HOST. Where there is none, the
 * call fails with GPUF_ERR_NO_DEVICE and the reason. Where GPUFETCH_POOL_MAX_NBYTES or another size
 * in the environment is no number of bytes, this and every call that uses a device is
 * GPUF_ERR_INVALID. */
GPUF_API gpuf_status gpuf_device_count(gpuf_device_kind kind, int32_t *count, gpuf_error *err);

/* Fill *info, which GPUF_DEVICE_INFO_INIT has initialized. GPUF_ERR_NO_DEVICE if there is no such
 * device; the CPU has no information. */
GPUF_API gpuf_status gpuf_device_get_info(gpuf_device device, gpuf_device_info *info,
                                          gpuf_error *err);

/* The device that is used where none is named: index 0 of the kind that the environment variable
 * GPUFETCH_BACKEND names, cuda or host. With auto, the default, it is cuda if a GPU answers and
 * host otherwise. */
GPUF_API gpuf_status gpuf_device_default(gpuf_device *device, gpuf_error *err);

/* The device whose memory `d_ptr` points into, whoever allocated it; managed memory counts. Any
 * other pointer is GPUF_ERR_INVALID. */
GPUF_API gpuf_status gpuf_device_of(const void *d_ptr, gpuf_device *device, gpuf_error *err);

/* Allocate device memory, aligned to 256 bytes or more. If `nbytes` is 0, *d_ptr becomes NULL. The
 * contents are indeterminate; the host backend fills them with a poison pattern. */
GPUF_API gpuf_status gpuf_alloc(gpuf_device device, size_t nbytes, void **d_ptr, gpuf_error *err);

/* Free what gpuf_alloc returned for `device`, after the work in flight that may use it. NULL is
 * allowed. Memory of another device is refused with GPUF_ERR_INVALID, and memory that is shared
 * (share.h) with GPUF_ERR_STATE.
 *
 * On CUDA, allocations of 1 MiB or more are kept for the next gpuf_alloc of the same size, up to 2
 * GiB in all, or what the environment variable GPUFETCH_DEVICE_KEEP_MAX_NBYTES says. They are given
 * back to the driver by gpuf_device_trim, and by a gpuf_alloc that finds no other memory. */
GPUF_API gpuf_status gpuf_free(gpuf_device device, void *d_ptr, gpuf_error *err);

/* Give back to the driver what gpuf_free, reductions and the codec keep for later calls. */
GPUF_API void gpuf_device_trim(void);

/* --- Streams ------------------------------------------------------------- */

/* A stream handle, in the convention of the CUDA Array Interface: on a CUDA device any cudaStream_t
 * cast to uintptr_t, on the host backend a stream of gpuf_stream_create. */
typedef uintptr_t gpuf_stream;

#define GPUF_STREAM_NONE ((gpuf_stream)0)       /* no work is pending, so nothing is waited for */
#define GPUF_STREAM_LEGACY ((gpuf_stream)1)     /* the device's default stream */
#define GPUF_STREAM_PER_THREAD ((gpuf_stream)2) /* the per-thread default stream */

/* Create a stream that does not synchronize with the device's default stream. */
GPUF_API gpuf_status gpuf_stream_create(gpuf_device device, gpuf_stream *stream, gpuf_error *err);
/* Destroy a stream of gpuf_stream_create, after its work. If that has failed, and nothing has said
 * so yet, its failure is returned, and the stream is destroyed all the same. GPUF_STREAM_NONE is
 * allowed, and does nothing; the two default streams are refused with GPUF_ERR_INVALID. */
GPUF_API gpuf_status gpuf_stream_destroy(gpuf_device device, gpuf_stream stream, gpuf_error *err);
/* Block until the work that has been enqueued is done. Reports a failure of any of it. On the host
 * backend work behind a failure is skipped until this call has reported it, once, to whichever
 * thread made the call; on a CUDA device all later calls fail. */
GPUF_API gpuf_status gpuf_stream_synchronize(gpuf_device device, gpuf_stream stream,
                                             gpuf_error *err);

/* Run `kernel(args)` on a stream of the host backend, in order with the stream's other work and on
 * the stream's own thread. `args_nbytes` bytes at `args`, at most 1008, are copied before the call
 * returns. A program can so have a host version of each of its CUDA kernels.
 *
 * As in a host function of CUDA, a kernel must not use devices: a call in it that does so, such as
 * one that waits for a stream, is GPUF_ERR_STATE. gpuf_host_pointer is the exception. */
GPUF_API gpuf_status gpuf_host_launch(gpuf_device device, gpuf_stream stream,
                                      void (*kernel)(const void *args), const void *args,
                                      size_t args_nbytes, gpuf_error *err);

/* The address at which a kernel of gpuf_host_launch, while it runs, may touch the device memory at
 * `d_ptr`. Elsewhere, and for a pointer that is not into an allocation of the host backend, the
 * result is NULL. */
GPUF_API void *gpuf_host_pointer(const void *d_ptr);

/* --- Element types ------------------------------------------------------- */

/* The values are part of the chunk format (docs/format.md) and never change. */
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

/* The name that NumPy or ml_dtypes gives the type, such as "float32" or "float8_e4m3fn"; "unknown"
 * for a value outside the enumeration. In static storage. */
GPUF_API const char *gpuf_dtype_name(gpuf_dtype dtype);
/* The size of one element; 0 for a value outside the enumeration. */
GPUF_API size_t gpuf_dtype_nbytes(gpuf_dtype dtype);

/* --- Tensors ------------------------------------------------------------- */

#define GPUF_NDIM_MAX 32

/* Describes elements in memory. It is a plain value that owns nothing and may be copied. The memory
 * must stay valid until every call and future that was given the descriptor is done. */
typedef struct gpuf_tensor {
  void *data; /* address of element [0, ..., 0], in device or host memory */
  gpuf_device device;
  gpuf_dtype dtype;
  int32_t ndim;                 /* 0 (one element) to GPUF_NDIM_MAX */
  int64_t shape[GPUF_NDIM_MAX]; /* each >= 0 */
  /* May be negative; 0 repeats an element. That of an axis of length 1, and all of a tensor without
   * elements, mean nothing and may have any value. */
  int64_t strides_nbytes[GPUF_NDIM_MAX];
  /* Stream with pending work on the memory, or GPUF_STREAM_NONE. Calls wait for it where the tensor
   * is on a device; that of a CPU tensor is ignored, so synchronize it first. */
  gpuf_stream stream;
} gpuf_tensor;

/* Describe elements that lie at `data` in C order. The stream becomes GPUF_STREAM_NONE. Checks what
 * gpuf_tensor_check checks. `shape` may be NULL if `ndim` is 0, and `data` if there are no
 * elements.
 *
 * `data` is const so that read-only memory can be described without a cast. Such a tensor must only
 * be the source of a copy, a reduction or a write. */
GPUF_API gpuf_status gpuf_tensor_init(gpuf_tensor *tensor, const void *data, gpuf_device device,
                                      gpuf_dtype dtype, int32_t ndim, const int64_t *shape,
                                      gpuf_error *err) GPUF_NOT_READ(2);

/* Check a descriptor that was filled in by hand: the element type, the rank, the shape, the device
 * kind, that shape and strides span no more than ptrdiff_t holds and no element lies beyond the
 * addresses that there are, and that data is not NULL if there are elements. Every call that takes
 * a tensor does this itself. */
GPUF_API gpuf_status gpuf_tensor_check(const gpuf_tensor *tensor, gpuf_error *err);

/* The number of elements, which is the product of the shape: 1 if ndim is 0. 0 for NULL. INT64_MAX
 * if the rank or a length is out of range or the product overflows, which gpuf_tensor_check
 * refuses. */
GPUF_API int64_t gpuf_tensor_count(const gpuf_tensor *tensor);
/* The size of the elements when they are packed. With strides they may span more or fewer bytes.
 * SIZE_MAX, for which there is no memory, if the descriptor is one that gpuf_tensor_check refuses
 * for its element type, rank or shape. */
GPUF_API size_t gpuf_tensor_nbytes(const gpuf_tensor *tensor);
/* True if the elements are packed in C order, as fewer than two always are. False for NULL and for
 * a descriptor of which gpuf_tensor_nbytes is SIZE_MAX. */
GPUF_API bool gpuf_tensor_is_contiguous(const gpuf_tensor *tensor);

/* Narrow one axis, from 0 to ndim - 1, to the `count` indices start, start + step, and so on.
 * `step` may be negative. If an index lies outside the axis, the call fails and the tensor is
 * unchanged. */
GPUF_API gpuf_status gpuf_tensor_slice(gpuf_tensor *tensor, int32_t axis, int64_t start,
                                       int64_t step, int64_t count, gpuf_error *err);

/* Allocate device memory for elements in C order, as gpuf_alloc does, and describe it. */
GPUF_API gpuf_status gpuf_tensor_alloc(gpuf_device device, gpuf_dtype dtype, int32_t ndim,
                                       const int64_t *shape, gpuf_tensor *tensor, gpuf_error *err);
/* Free the memory of a tensor that gpuf_tensor_alloc has made and that was not sliced since, as
 * gpuf_free does, and set tensor->data to NULL. A tensor whose data is NULL is allowed. */
GPUF_API gpuf_status gpuf_tensor_free(gpuf_tensor *tensor, gpuf_error *err);

/* Enqueue on `stream` a copy of every element of `src` to the same index of `dst`, within one
 * device, and return without waiting for it. Shapes and element types must be equal, and layouts
 * may differ. Two tensors that share elements are GPUF_ERR_INVALID, unless they coincide; views
 * that interleave share none. The copy starts after the work that is pending on `stream`,
 * src->stream and dst->stream; both memories must stay valid, and `src` unchanged, until the work
 * on `stream` is done. `stream` is one of the device and not GPUF_STREAM_NONE.
 *
 * If neither side is packed, the elements pass through scratch, as in gpuf_copy_async. Two
 * different devices are GPUF_ERR_UNSUPPORTED. If the call fails, `dst` may be partly written. */
GPUF_API gpuf_status gpuf_tensor_copy(const gpuf_tensor *dst, const gpuf_tensor *src,
                                      gpuf_stream stream, gpuf_error *err);

/* --- Pinned pool --------------------------------------------------------- */

/* The pool holds page-locked host memory, which every device can transfer to and from at link
 * speed. There is one for the process; nothing is torn down at exit. */
typedef struct gpuf_pool_stats {
  size_t struct_nbytes;
  size_t cap_nbytes;      /* limit on reserved_nbytes */
  size_t reserved_nbytes; /* page-locked now, in use or ready for reuse */
  size_t used_nbytes;     /* handed out now */
  size_t peak_used_nbytes;
  uint64_t hit_count;  /* buffers handed out without page-locking more memory */
  uint64_t miss_count; /* buffers for which memory was page-locked */
} gpuf_pool_stats;

#define GPUF_POOL_STATS_INIT {sizeof(gpuf_pool_stats), 0, 0, 0, 0, 0, 0}

/* Take a buffer of at least `nbytes` (> 0) from the pool for transfers with `device`. It is aligned
 * to 4096 bytes if it is that large, and to 64 otherwise; its contents are indeterminate.
 * GPUF_ERR_NO_MEMORY means that the cap would be exceeded or that the system has no more memory.
 * Give the buffer back with gpuf_pool_release when no transfer uses it any more. */
GPUF_API gpuf_status gpuf_pool_acquire(gpuf_device device, size_t nbytes, void **ptr,
                                       gpuf_error *err);
/* The same for a buffer that takes one copy and that the program then keeps. If it is large and
 * new, it is not page-locked yet: gpuf_copy fills it through staging buffers, which is quicker than
 * page-locking it first. It is page-locked when the pool hands it out again. */
GPUF_API gpuf_status gpuf_pool_acquire_result(gpuf_device device, size_t nbytes, void **ptr,
                                              gpuf_error *err);
/* Give a buffer back to the pool. NULL is allowed. A buffer that is not in use, because it was
 * released before, is GPUF_ERR_STATE, and a pointer that the pool has not handed out
 * GPUF_ERR_INVALID; nothing is released then. In a forked child the call does nothing. */
GPUF_API gpuf_status gpuf_pool_release(void *ptr, gpuf_error *err);
/* Fill *stats, which GPUF_POOL_STATS_INIT has initialized: all members at one moment. */
GPUF_API gpuf_status gpuf_pool_get_stats(gpuf_pool_stats *stats, gpuf_error *err);
/* Give unused memory back to the system until at most `keep_nbytes` stay reserved. */
GPUF_API void gpuf_pool_trim(size_t keep_nbytes);
/* Change the cap. The default is a quarter of the physical memory, or what the environment variable
 * GPUFETCH_POOL_MAX_NBYTES says. Buffers in use stay; unused memory is given back to fit the cap.
 */
GPUF_API void gpuf_pool_set_cap(size_t cap_nbytes);

/* --- Copies -------------------------------------------------------------- */

typedef struct gpuf_copy_options {
  size_t struct_nbytes;
  size_t piece_nbytes;  /* that one transfer moves; 0: chosen by the library */
  int32_t thread_count; /* that fill or empty staging buffers, 64 at most; 0: chosen likewise */
  bool cast;            /* the element types may differ: see gpuf_copy_async */
} gpuf_copy_options;

#define GPUF_COPY_OPTIONS_INIT {sizeof(gpuf_copy_options), 0, 0, false}

/* A copy in flight. Several threads may call gpuf_future_wait and gpuf_future_done at once;
 * gpuf_future_destroy must be the last call. */
typedef struct gpuf_future gpuf_future;

/* Start copying every element of `src` to the same index of `dst`. One of the two is on a device
 * and the other on the CPU, or both are on the CPU. Shapes and element types must be equal; layouts
 * may differ. Two tensors that share elements are GPUF_ERR_INVALID, unless they coincide; so is a
 * `dst` that has several elements at one address. Views that interleave share none. The copy starts
 * after the work that is pending on the stream of the side on a device. Until the future is done,
 * both memories must stay valid, `src` unchanged and `dst` unread. `options` may be NULL. On a
 * failure to start, nothing is in flight and *future is NULL.
 *
 *   - A CPU side that is contiguous and page-locked, such as a buffer of the pool, is transferred
 * in place. Any other passes through page-locked staging buffers, which several threads fill or
 *     empty.
 *   - The order of the axes does not matter: two arrays that lie in memory alike, for example both
 *     in Fortran order, are copied as one range of bytes.
 *   - A device side that is not contiguous is transferred by rows if these are wide. Otherwise the
 *     device packs it in scratch, which takes at most 64 MiB for each device, or what the
 *     environment variable GPUFETCH_SCRATCH_MAX_NBYTES says, however large the tensors are. Where
 *     copies that wait for their streams have all of it, one that needs some comes after them.
 *   - With options->cast, elements of `src` are converted to the type of `dst`, from any real type
 * to any real type but float8_e8m0fnu, as astype of NumPy and ml_dtypes does: to a floating-point
 *     type by rounding to nearest, ties to even; to bool, true for what is not 0; between integers
 *     modulo 2^bits. A floating-point value that the integer type cannot hold gives an unspecified
 *     integer. A NaN stays a NaN, but its payload may change. If one side is on a device, the
 * device converts, and elements of the CPU side's type cross the link. */
GPUF_API gpuf_status gpuf_copy_async(const gpuf_tensor *dst, const gpuf_tensor *src,
                                     const gpuf_copy_options *options, gpuf_future **future,
                                     gpuf_error *err);

/* Copy as gpuf_copy_async does, and wait. If the copy fails, `dst` may be partly written. */
GPUF_API gpuf_status gpuf_copy(const gpuf_tensor *dst, const gpuf_tensor *src,
                               const gpuf_copy_options *options, gpuf_error *err);

/* Copy `count` pairs in one call, dsts[i] from srcs[i], as gpuf_copy does. This is much faster than
 * a loop if many of them are small: those that are contiguous on the device and lie in buffers of
 * the pool travel together, and devices work at the same time. Each pair may have its own device
 * and direction. No destination may overlap another pair's tensors, which is not checked.
 * `dsts` and `srcs` may be NULL if `count` is 0.
 *
 *   - If dsts[i] ends in a buffer of the pool before a multiple of 64 bytes, and the next
 * destination begins at that multiple, the bytes between the two become indeterminate.
 *   - The error names the index of the pair that failed, or the first and the last index of the
 * pairs that travelled together. All work has ended when the call returns; after a failure any
 *     destination may be partly written. */
GPUF_API gpuf_status gpuf_copy_many(const gpuf_tensor *dsts, const gpuf_tensor *srcs, size_t count,
                                    const gpuf_copy_options *options, gpuf_error *err);

/* Block until the copy is done or has failed, and report its outcome, which is the same at every
 * call. If `timeout_ns` is negative, the wait has no limit; otherwise GPUF_ERR_TIMEOUT means that
 * the copy still runs. */
GPUF_API gpuf_status gpuf_future_wait(gpuf_future *future, int64_t timeout_ns, gpuf_error *err);
/* True if the copy is done or has failed, so that gpuf_future_wait returns at once. */
GPUF_API bool gpuf_future_done(gpuf_future *future);
/* Wait for the copy if it still runs, and free the future; after a failure also for the work that
 * was on the tensors' streams when the copy began. NULL is allowed. A kernel of the host
 * backend waits for no copy: there, a future whose copy still runs is not freed. */
GPUF_API void gpuf_future_destroy(gpuf_future *future);

#ifdef __cplusplus
}
#endif

#endif /* GPUFETCH_GPUFETCH_H */
