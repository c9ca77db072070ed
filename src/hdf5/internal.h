/* What the files of src/hdf5 share. */
#ifndef GPUFI_HDF5_INTERNAL_H
#define GPUFI_HDF5_INTERNAL_H

#include "codec/bitshuffle.h"
#include "codec/codec.h"
#include "hdf5/api.h"

#include <pthread.h>

/* --- session.c: one public call ------------------------------------------ */

/* Used by the thread that made the public call, and by no other: HDF5 is entered by it alone. */
typedef struct gpufi_h5_session {
  gpufi_h5_api *api;
  gpuf_h5_options options; /* a copy; zeros where the caller gave none */
  bool entered;
  /* The library's automatic error printing, off while entered. */
  bool printing_saved;
  H5E_auto2_t print;
  void *print_arg;
} gpufi_h5_session;

/* Binds if need be and checks the options. */
gpuf_status gpufi_h5_session_init(gpufi_h5_session *session, const gpuf_h5_options *options,
                                  gpuf_error *err);
/* Take and give back the caller's lock. HDF5 functions are called in between only. Both do
 * nothing when there is nothing to do. */
void gpufi_h5_enter(gpufi_h5_session *session);
void gpufi_h5_leave(gpufi_h5_session *session);

/* Fill `err` with the text and the innermost messages of HDF5's error stack; return
 * GPUF_ERR_HDF5. Call it while entered, before any other HDF5 function. */
gpuf_status gpufi_h5_fail(gpufi_h5_session *session, gpuf_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Close an identifier of any kind; a negative one is ignored. Entered. */
void gpufi_h5_close(gpufi_h5_session *session, hid_t id);

/* Register the filter with the session's library. Entered. */
gpuf_status gpufi_h5_register(gpufi_h5_session *session, gpuf_error *err);

/* --- types.c: element types ---------------------------------------------- */

/* The type that elements of `dtype` have in memory and in files that gpufetch writes:
 * little-endian. Close it. Entered. */
gpuf_status gpufi_h5_type_create(gpufi_h5_session *session, gpuf_dtype dtype, hid_t *type,
                                 gpuf_error *err);
struct gpufi_h5_dataset;
/* The type of the elements in memory that H5Dread and H5Dwrite convert to and from: HDF5 2.0 has no
 * conversion between its complex type and a compound of the other byte order. */
gpuf_status gpufi_h5_type_create_memory(gpufi_h5_session *session,
                                        const struct gpufi_h5_dataset *dataset, hid_t *type,
                                        gpuf_error *err);
/* What the stored `type` of the dataset called `name` is. *native tells whether its bytes are
 * those of a gpuf_dtype in memory. Entered. */
gpuf_status gpufi_h5_type_match(gpufi_h5_session *session, hid_t type, const char *name,
                                gpuf_dtype *dtype, bool *native, gpuf_error *err);

/* True for the small floats that are stored as a compound of one byte. */
bool gpufi_h5_dtype_is_named_byte(gpuf_dtype dtype);

/* --- grid.c: boxes that tile a dataset ------------------------------------ */

/* A part of a dataset; inside it. */
typedef struct gpufi_h5_region {
  int64_t start[GPUF_NDIM_MAX];
  int64_t shape[GPUF_NDIM_MAX];
} gpufi_h5_region;

typedef struct gpufi_h5_grid {
  int32_t ndim;
  gpufi_h5_region region;       /* what the boxes cover */
  int64_t first[GPUF_NDIM_MAX]; /* where the first box starts, at or before the region */
  int64_t box[GPUF_NDIM_MAX];   /* >= 1 */
  int64_t counts[GPUF_NDIM_MAX];
  int64_t total; /* boxes, the last axis fastest; 0 when the region has no elements */
} gpufi_h5_grid;

/* Boxes start at multiples of `align`, counted from the region's first such. */
void gpufi_h5_grid_init(gpufi_h5_grid *grid, int32_t ndim, const gpufi_h5_region *region,
                        const int64_t *align, const int64_t *box);
/* Where box `index` starts. */
void gpufi_h5_grid_origin(const gpufi_h5_grid *grid, int64_t index, int64_t *origin);
/* The part of box `index` that lies inside the region. */
void gpufi_h5_grid_box(const gpufi_h5_grid *grid, int64_t index, int64_t *start, int64_t *extent);
/* Narrow `tensor` to start and extent. */
gpuf_status gpufi_h5_narrow(gpuf_tensor *tensor, const int64_t *start, const int64_t *extent,
                            gpuf_error *err);
/* Chunk shape for a tensor of at least one axis and one element: about 1 MiB. */
void gpufi_h5_chunk_default(const gpuf_tensor *tensor, int64_t *chunk);
/* Check a chunk shape that the caller chose for `tensor`. */
gpuf_status gpufi_h5_chunk_check(const gpuf_tensor *tensor, const int64_t *chunk, gpuf_error *err);
/* How the codec sees a chunk: leading axes beyond its limit are folded into one. */
gpuf_status gpufi_h5_chunk_shape(gpuf_dtype dtype, int32_t ndim, const int64_t *chunk,
                                 gpufi_chunk_shape *shape, size_t *raw_nbytes, gpuf_error *err);

/* --- dataset.c: an open dataset ------------------------------------------- */

typedef enum gpufi_h5_route {
  GPUFI_H5_ROUTE_SLABS,      /* through H5Dread and H5Dwrite, in bounded pieces */
  GPUFI_H5_ROUTE_PLAIN,      /* whole chunks, no filter */
  GPUFI_H5_ROUTE_GPUFETCH,   /* whole chunks, the gpufetch filter alone */
  GPUFI_H5_ROUTE_BITSHUFFLE, /* whole chunks, filter 32008 alone, with LZ4 */
} gpufi_h5_route;

typedef struct gpufi_h5_dataset {
  hid_t id; /* the caller's */
  char name[256];
  gpuf_dtype dtype;
  bool is_native_complex; /* stored as HDF5 2.0's complex type, not as a compound */
  int32_t ndim;
  int64_t shape[GPUF_NDIM_MAX];
  gpufi_h5_route route;
  bool chunked;
  int64_t chunk[GPUF_NDIM_MAX]; /* all 1 unless chunked */
  /* Set for the chunk routes only. */
  gpufi_chunk_shape chunk_shape;
  size_t chunk_nbytes;
} gpufi_h5_dataset;

/* Largest size of an encoded chunk, and what coding one needs beside; 0 for plain chunks. */
size_t gpufi_h5_encoded_bound(const gpufi_h5_dataset *dataset);
size_t gpufi_h5_scratch_nbytes(const gpufi_h5_dataset *dataset);

/* Inspect an open dataset. Entered. */
gpuf_status gpufi_h5_dataset_init(gpufi_h5_dataset *dataset, gpufi_h5_session *session, hid_t id,
                                  gpuf_error *err);
/* The region of the tensor's shape that begins at `start`, or all for NULL. GPUF_ERR_INVALID if it
 * does not lie in the dataset, is not all of it, or for another dtype. `role` is "source" or
 * "destination". */
gpuf_status gpufi_h5_dataset_region(const gpufi_h5_dataset *dataset, const int64_t *start,
                                    const gpuf_tensor *tensor, const char *role,
                                    gpufi_h5_region *region, gpuf_error *err);
/* Whether the region consists of whole chunks, as far as the dataset goes. */
bool gpufi_h5_dataset_is_aligned(const gpufi_h5_dataset *dataset, const gpufi_h5_region *region);

/* --- direct.c: where the chunks lie in a plain file ------------------------- */

/* A chunk's place in the file; nbytes is 0 for one that was never written. */
typedef struct gpufi_h5_place {
  int64_t offset;
  uint32_t nbytes;
  uint32_t filter_mask;
} gpufi_h5_place;

/* For reading past HDF5: `places` has one for each chunk of the grid; NULL, and fd -1, where the
 * chunks must be had from HDF5. */
typedef struct gpufi_h5_direct {
  int fd;
  gpufi_h5_place *places;
} gpufi_h5_direct;

/* Entered. Never fails: what cannot be read directly is read through HDF5. */
void gpufi_h5_direct_init(gpufi_h5_direct *direct, gpufi_h5_session *session,
                          const gpufi_h5_dataset *dataset, const gpufi_h5_grid *grid);
void gpufi_h5_direct_fini(gpufi_h5_direct *direct);
/* Read exactly `nbytes`. */
gpuf_status gpufi_h5_direct_read(int fd, int64_t offset, void *bytes, size_t nbytes,
                                 gpuf_error *err);

/* --- chunk.c: chunks between a dataset and a tensor ------------------------- */

/* What moves: a box of a dataset, chunk by chunk, from or to a tensor of its shape. Constant while
 * it does. */
typedef struct gpufi_h5_move {
  const gpufi_h5_dataset *dataset;
  const gpuf_tensor *tensor;
  gpufi_h5_grid grid;     /* the chunks that the box touches */
  gpufi_h5_direct direct; /* for reading; gpufi_h5_direct_fini */
} gpufi_h5_move;

void gpufi_h5_move_init(gpufi_h5_move *move, const gpufi_h5_dataset *dataset,
                        const gpufi_h5_region *region, const gpuf_tensor *tensor);

/* What chunk `index` and the tensor have in common: `part` of the whole chunk, which is at `raw` on
 * `device`, and `view` of the tensor. */
gpuf_status gpufi_h5_chunk_parts(const gpufi_h5_move *move, int64_t index, void *raw,
                                 gpuf_device device, gpuf_tensor *part, gpuf_tensor *view,
                                 gpuf_error *err);

typedef enum gpufi_h5_slot_state {
  GPUFI_H5_SLOT_FREE,
  GPUFI_H5_SLOT_READY, /* filled by its producer, not yet seen by its consumer */
  GPUFI_H5_SLOT_BUSY,  /* a worker has it */
} gpufi_h5_slot_state;

/* A chunk on its way. Owned by the thread whose turn the state says it is. */
typedef struct gpufi_h5_slot {
  gpufi_h5_slot_state state; /* under the ring's mutex */
  int64_t index;             /* of the chunk */
  void *raw;                 /* one whole chunk; pinned where the pool had room */
  bool raw_pooled;
  void *encoded; /* gpufi_h5_encoded_bound() bytes; NULL where the route encodes nothing */
  size_t encoded_nbytes;
  uint32_t filter_mask;
  bool is_raw; /* reading: the elements are in `raw` already, and encoded_nbytes is 0 */
  /* Reading: gpufi_h5_chunk_load reads the chunk, which takes encoded_nbytes, from here; else
   * negative. */
  int64_t file_offset;
  gpuf_future *future;
} gpufi_h5_slot;

/* Bit of the filter mask that says that the first filter was skipped. */
#define GPUFI_H5_FILTER_SKIPPED 1u

/* Reading a chunk takes three steps. `get` sets its place in the file, or enters and has HDF5 read
 * its bytes, or its elements where only HDF5 knows them: those of chunks never written. */
gpuf_status gpufi_h5_chunk_get(gpufi_h5_session *session, const gpufi_h5_move *move,
                               gpufi_h5_slot *slot, int64_t index, gpuf_error *err);
/* Read what `get` left in the file, on any thread. */
gpuf_status gpufi_h5_chunk_load(const gpufi_h5_move *move, const gpufi_h5_slot *slot,
                                gpuf_error *err);
/* The elements to slot->raw, on any thread. `scratch` is of gpufi_h5_scratch_nbytes(); NULL will do
 * for chunks of gpufetch. */
gpuf_status gpufi_h5_chunk_decode(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                                  gpuf_error *err);

/* --- ring.c: chunks in flight between the calling thread and its workers --- */

/* What a worker does with the chunk in `slot`: `begin` may leave a copy in flight, which `end`, if
 * there is one, waits for. `scratch` is the worker's own. */
typedef struct gpufi_h5_work {
  gpuf_status (*begin)(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                       gpuf_error *err);
  gpuf_status (*end)(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                     gpuf_error *err);
  /* True when workers produce (writing a file), false when they consume (reading one). */
  bool produces;
} gpufi_h5_work;

/* Chunk i uses slot i % slot_count, so chunks pass through in order. */
typedef struct gpufi_h5_ring {
  const gpufi_h5_move *move;
  const gpufi_h5_work *work;
  gpufi_h5_slot *slots;
  int64_t slot_count;
  bool has_own_slots;
  pthread_t *threads;
  int thread_count;
  pthread_mutex_t mutex; /* guards slot states and what follows */
  pthread_cond_t changed;
  int64_t next_claim; /* the chunk that the next free worker takes */
  bool stop;
  gpuf_status status; /* of the first failure in a worker */
  gpuf_error error;
} gpufi_h5_ring;

/* Allocates slots and starts the workers, from chunk `first` on; 0 threads = as many as there are
 * cores. Or uses `slot_count` free slots of the caller, who keeps them and their memory, where
 * `slots` is not NULL. Destroy it even when this fails. */
gpuf_status gpufi_h5_ring_init(gpufi_h5_ring *ring, const gpufi_h5_move *move,
                               const gpufi_h5_work *work, int64_t first, int32_t thread_count,
                               gpufi_h5_slot *slots, int64_t slot_count, gpuf_error *err);
/* For the calling thread: true if the slot of chunk `index` is in `state` now, or once `wait` has
 * ended. False after a failure, which gpufi_h5_ring_status reports. */
bool gpufi_h5_ring_slot(gpufi_h5_ring *ring, int64_t index, gpufi_h5_slot_state state, bool wait,
                        gpufi_h5_slot **slot);
void gpufi_h5_ring_pass(gpufi_h5_ring *ring, gpufi_h5_slot *slot, gpufi_h5_slot_state state);
/* The first failure of a worker, or GPUF_OK. */
gpuf_status gpufi_h5_ring_status(gpufi_h5_ring *ring, gpuf_error *err);
/* Stops and joins the workers, waits for copies in flight, frees what is its own. */
void gpufi_h5_ring_fini(gpufi_h5_ring *ring);

/* --- the routes ------------------------------------------------------------ */

/* Not entered when called, nor after. The dataset matches the tensor and has elements. */
gpuf_status gpufi_h5_write_chunks(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                  const gpufi_h5_region *region, const gpuf_tensor *src,
                                  gpuf_error *err);
/* The same by the device's encoder, as far as that goes: chunks [0, *done) are written. */
gpuf_status gpufi_h5_write_batches(gpufi_h5_session *session, const gpufi_h5_move *move,
                                   int64_t *done, gpuf_error *err);
/* H5Dwrite_chunk of chunk `index`. Entered. */
gpuf_status gpufi_h5_chunk_put(gpufi_h5_session *session, const gpufi_h5_move *move, int64_t index,
                               const void *bytes, size_t nbytes, gpuf_error *err);
gpuf_status gpufi_h5_read_chunks(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                 const gpufi_h5_region *region, const gpuf_tensor *dst,
                                 gpuf_error *err);
/* The same by the device's decoder, as far as that goes: chunks [0, *done) are in place. */
gpuf_status gpufi_h5_read_batches(gpufi_h5_session *session, const gpufi_h5_move *move,
                                  int64_t *done, gpuf_error *err);
/* H5Dread or H5Dwrite of the box at `start`, from or to the origin of a buffer of
 * `buffer_shape`. Entered. */
gpuf_status gpufi_h5_transfer(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                              const int64_t *start, const int64_t *extent, void *buffer,
                              const int64_t *buffer_shape, bool writes, gpuf_error *err);
gpuf_status gpufi_h5_write_slabs(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                 const gpufi_h5_region *region, const gpuf_tensor *src,
                                 gpuf_error *err);
gpuf_status gpufi_h5_read_slabs(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                const gpufi_h5_region *region, const gpuf_tensor *dst,
                                gpuf_error *err);

#endif
