/* Asynchronous writes: a thread copies and encodes, and the caller's thread hands to HDF5. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/kernel_thread.h"
#include "core/channel.h"
#include "core/runtime.h"
#include "core/workers.h"
#include "hdf5/access.h"
#include "hdf5/coding.h"
#include "hdf5/hyperslab.h"
#include "hdf5/outgoing.h"
#include "hdf5/writable.h"

#define MAX_NBYTES_DEFAULT ((size_t)256 << 20)

struct gpuf_h5_future {
  int64_t process_id;
  gpufi_h5_session session;
  gpufi_h5_dataset dataset; /* as it was when the write began; constant */
  gpufi_h5_dataset current; /* with the shape that it has now */
  gpufi_h5_box box;
  gpuf_tensor src;
  gpufi_channel *keeper;      /* of src.stream; NULL for the CPU */
  gpufi_h5_transfer transfer; /* of `current`; for the thread that hands to HDF5 */
  gpufi_h5_outgoing outgoing;
  gpufi_workers workers; /* the producer */
  bool has_producer;     /* else there was no thread, and waiting writes it all */
  hid_t id;              /* the library's own reference to the dataset; invalid once closed */
  bool is_new;           /* the dataset was created for the write, at */
  hid_t location;        /* this group, as */
  gpufi_h5_path path;
  bool is_settled; /* `status` and `error` are final */
  gpuf_status status;
  gpuf_error error;
};

/* --- The producer ------------------------------------------------------------ */

static void produce(void *arg) {
  gpuf_h5_future *const f = arg;
  const gpufi_h5_context context = {.api = f->session.api, .outgoing = &f->outgoing};
  gpufi_h5_session session; /* which never enters */
  gpuf_error error = {0};
  gpufi_h5_context_set(&context);
  gpuf_status status = gpufi_h5_session_init(&session, &f->session.options, &error);
  if (status == GPUF_OK) {
    status = gpufi_h5_box_transfer(&session, &f->dataset, &f->box, &f->src, true, &error);
  }
  gpufi_h5_context_set(NULL);
  gpufi_h5_outgoing_end(&f->outgoing, status, &error);
}

/* --- Beginning --------------------------------------------------------------- */

/* Let the tensor's stream be one that holds in every thread, and that waits for no later work. */
static gpuf_status name_stream(gpuf_h5_future *f, gpuf_error *err) {
  const gpufi_backend *backend;
  if (f->src.device.kind == GPUF_DEVICE_CPU) {
    return GPUF_OK;
  }
  const gpuf_status status = gpufi_backend_for(f->src.device, &backend, err);
  return status == GPUF_OK
             ? gpufi_channel_keep_stream(backend, f->src.device, &f->src.stream, &f->keeper, err)
             : status;
}

/* The dataset is known: start to copy and to encode. */
static gpuf_status start(gpuf_h5_future *f, const int64_t *start, gpuf_error *err) {
  gpuf_status status = gpufi_h5_dataset_box(&f->dataset, start, &f->src, "source", &f->box, err);
  if (status == GPUF_OK) {
    status = name_stream(f, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  f->current = f->dataset;
  gpufi_h5_transfer_init(&f->transfer, &f->session, &f->current, &f->box, &f->src, true);
  f->has_producer = gpufi_workers_start(&f->workers, 1, produce, f) == 1;
  return GPUF_OK;
}

/* A write that has not begun; NULL after a failure, which goes to *status. */
static gpuf_h5_future *create(const gpuf_tensor *src, const gpuf_h5_options *options,
                              gpuf_status *status, gpuf_error *err) {
  *status = gpufi_h5_check_tensor(src, "src", err);
  if (*status != GPUF_OK) {
    return NULL;
  }
  gpuf_h5_future *const f = calloc(1, sizeof(*f));
  if (!f) {
    *status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a write in flight");
    return NULL;
  }
  f->process_id = getpid();
  f->src = *src;
  f->id = f->location = H5I_INVALID_HID;
  f->transfer.direct.fd = -1; /* until `start` begins the transfer */
  *status = gpufi_h5_session_init(&f->session, options, err);
  if (*status != GPUF_OK) {
    free(f);
    return NULL;
  }
  const size_t most = f->session.options.async_max_nbytes;
  gpufi_h5_outgoing_init(&f->outgoing, most ? most : MAX_NBYTES_DEFAULT);
  return f;
}

/* --- Ending ------------------------------------------------------------------ */

/* What was opened for the write is closed, and what was created is unlinked after a failure. */
static gpuf_status close_dataset(gpuf_h5_future *f, gpuf_status status, gpuf_error *err) {
  if (f->is_new && f->id >= 0) {
    status = gpufi_h5_finish_dataset(&f->session, f->location, &f->path, f->id,
                                     f->dataset.ndim == 0, status, err);
    f->id = H5I_INVALID_HID;
  }
  gpufi_h5_enter(&f->session);
  gpufi_h5_close(&f->session, f->id);
  gpufi_h5_close(&f->session, f->location);
  gpufi_h5_leave(&f->session);
  f->id = f->location = H5I_INVALID_HID;
  return status;
}

/* End the producer, who does not read the tensor any more then, and close the dataset. */
static void settle(gpuf_h5_future *f, gpuf_status status, const gpuf_error *error) {
  f->error = *error;
  gpufi_h5_outgoing_stop(&f->outgoing);
  if (f->has_producer) {
    gpufi_workers_wait(&f->workers);
  }
  f->status = close_dataset(f, status, &f->error);
  gpufi_channel_release(f->keeper, f->status != GPUF_OK);
  f->keeper = NULL;
  f->is_settled = true;
}

static void release(gpuf_h5_future *f) {
  gpufi_h5_transfer_fini(&f->transfer);
  gpufi_h5_outgoing_fini(&f->outgoing);
  gpufi_h5_path_fini(&f->path);
  free(f);
}

/* --- Handing to HDF5 --------------------------------------------------------- */

/* Learn the dataset's shape, in which the box must lie. Entered. */
static gpuf_status look_at_shape(gpuf_h5_future *f, gpuf_error *err) {
  const gpufi_h5_api *const api = f->session.api;
  hsize_t dims[GPUF_NDIM_MAX] = {0};
  const hid_t space = api->Dget_space(f->id);
  const int ndim = space < 0 ? -1 : api->Sget_simple_extent_ndims(space);
  if (ndim != f->dataset.ndim ||
      (ndim > 0 && api->Sget_simple_extent_dims(space, dims, NULL) < 0)) {
    gpufi_h5_close(&f->session, space);
    return gpufi_h5_fail(&f->session, err, "looking at the shape of dataset '%s' failed",
                         f->dataset.name);
  }
  gpufi_h5_close(&f->session, space);
  for (int32_t axis = 0; axis < ndim; axis++) {
    f->current.shape[axis] = (int64_t)dims[axis];
    if (f->box.start[axis] + f->box.shape[axis] > f->current.shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "dataset '%s' was made smaller while it was written: axis %d has %" PRId64
                        " elements, and the write needs %" PRId64,
                        f->dataset.name, (int)axis, f->current.shape[axis],
                        f->box.start[axis] + f->box.shape[axis]);
    }
  }
  return GPUF_OK;
}

/* Whether the dataset may be written still. Entered. */
static gpuf_status check_dataset(gpuf_h5_future *f, gpuf_error *err) {
  const gpufi_h5_api *const api = f->session.api;
  const gpufi_h5_file file = f->session.file;
  if (api->Iget_type(f->id) != H5I_DATASET || gpufi_h5_file_of(api, f->id).number != file.number) {
    api->Eclear2(H5E_DEFAULT);
    f->id = f->location = H5I_INVALID_HID;
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "dataset '%s' was closed before its write was finished: wait for the write "
                      "first, and close the file then",
                      f->dataset.name);
  }
  const gpuf_status status =
      gpufi_h5_check_writable(&f->session, f->id, "dataset", f->dataset.name, err);
  return status == GPUF_OK ? look_at_shape(f, err) : status;
}

static bool is_whole_chunk(const gpuf_h5_future *f, const gpufi_h5_box *tile) {
  return memcmp(tile->shape, f->dataset.chunk, (size_t)f->dataset.ndim * sizeof(*tile->shape)) == 0;
}

/* Write the elements that an encoded chunk has of the box, and leave the chunk's others as they
 * are. */
static gpuf_status put_elements(gpuf_h5_future *f, const gpufi_h5_chunk *chunk,
                                const gpufi_h5_box *tile, gpuf_error *err) {
  void *raw = NULL;
  gpuf_status status =
      chunk->encoded ? gpufi_h5_chunk_elements(&f->transfer, chunk, &raw, err) : GPUF_OK;
  if (status == GPUF_OK) {
    status = gpufi_h5_hyperslab_transfer(&f->session, &f->current, tile, raw ? raw : chunk->raw,
                                         f->dataset.chunk, true, err);
  }
  free(raw);
  return status;
}

/* A chunk at the edge of the dataset has its fill value beyond it. Once the dataset has grown,
 * there are elements that others may have written. Entered. */
static gpuf_status put_item(gpuf_h5_future *f, gpufi_h5_item *item, gpuf_error *err) {
  const bool encodes = gpufi_h5_encoded_bound(&f->dataset) > 0;
  gpufi_h5_chunk chunk = {.index = item->chunk_index, .encoded_nbytes = item->nbytes};
  *(encodes ? &chunk.encoded : &chunk.raw) = item->bytes;
  if (item->chunk_index < 0) {
    return gpufi_h5_hyperslab_transfer(&f->session, &f->current, &item->box, item->bytes,
                                       item->box.shape, true, err);
  }
  const gpufi_h5_box tile = gpufi_h5_grid_tile(&f->transfer.grid, item->chunk_index);
  const bool has_changed = memcmp(f->current.shape, f->dataset.shape,
                                  (size_t)f->dataset.ndim * sizeof(*f->dataset.shape)) != 0;
  return has_changed && !is_whole_chunk(f, &tile)
             ? put_elements(f, &chunk, &tile, err)
             : gpufi_h5_chunk_put(&f->session, &f->transfer, &chunk, err);
}

/* Enter, unless the call has done so, and look whether the dataset is as it was. */
static gpuf_status enter(gpuf_h5_future *f, gpuf_error *err) {
  if (f->session.entered) {
    return GPUF_OK;
  }
  gpufi_h5_enter(&f->session);
  return check_dataset(f, err);
}

/* Hand one item over, waiting for it until the deadline (NULL: none). *is_last: there are no more.
 */
static gpuf_status hand_over(gpuf_h5_future *f, const struct timespec *deadline, bool *is_last,
                             gpuf_error *err) {
  static const struct timespec past;
  gpufi_h5_item *item = NULL;
  gpuf_status status = gpufi_h5_outgoing_take(&f->outgoing, &past, &item, err);
  if (status == GPUF_ERR_TIMEOUT) {
    gpufi_h5_leave(&f->session); /* others may have the lock meanwhile */
    status = gpufi_h5_outgoing_take(&f->outgoing, deadline, &item, err);
  }
  *is_last = status == GPUF_OK && !item;
  if (status == GPUF_OK) {
    status = enter(f, err);
  }
  if (status == GPUF_OK && item) {
    status = put_item(f, item, err);
  }
  gpufi_h5_outgoing_drop(&f->outgoing, item);
  return status;
}

/* How long a call goes on. */
typedef struct limit {
  int64_t timeout_ns; /* negative: no limit */
  int64_t end_ns;
  struct timespec deadline;
  size_t count; /* items; a call that does not wait takes those that are there */
  bool until_copied;
} limit;

static bool is_over(const limit *l, size_t done_count) {
  return l->timeout_ns >= 0 && done_count >= l->count && gpufi_clock_ns() >= l->end_ns;
}

static gpuf_status write_at_once(gpuf_h5_future *f, gpuf_error *err) {
  gpuf_status status = enter(f, err);
  gpufi_h5_leave(&f->session);
  return status == GPUF_OK
             ? gpufi_h5_box_transfer(&f->session, &f->current, &f->box, &f->src, true, err)
             : status;
}

/* GPUF_ERR_TIMEOUT: not finished within the limit. */
static gpuf_status advance(gpuf_h5_future *f, const limit *l, gpuf_error *err) {
  gpuf_status status = f->has_producer ? GPUF_OK : write_at_once(f, err);
  bool is_last = !f->has_producer;
  for (size_t count = 0; status == GPUF_OK && !is_last; count++) {
    if (l->until_copied && gpufi_h5_outgoing_is_ended(&f->outgoing)) {
      break;
    }
    if (is_over(l, count)) {
      status = gpufi_fail(err, GPUF_ERR_TIMEOUT, 0, "the write is not finished yet");
    } else {
      status = hand_over(f, l->timeout_ns < 0 ? NULL : &l->deadline, &is_last, err);
    }
  }
  gpufi_h5_leave(&f->session);
  return status;
}

static gpuf_status wait_for(gpuf_h5_future *f, int64_t timeout_ns, bool until_copied,
                            gpuf_error *err) {
  gpuf_error error = {0};
  if (!f) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the future is NULL");
  }
  const gpuf_status refused = gpufi_check_process(f->process_id, err);
  if (refused != GPUF_OK) {
    return refused;
  }
  if (timeout_ns < 0 && gpufi_in_kernel()) { /* the write may be behind this very kernel */
    return gpufi_refuse_in_kernel(err);
  }
  if (!f->is_settled) {
    limit l = {.timeout_ns = timeout_ns, .until_copied = until_copied};
    if (timeout_ns >= 0) {
      l.end_ns = gpufi_clock_ns() + gpufi_min_int64(timeout_ns, INT64_MAX / 2);
      l.deadline = gpufi_deadline_after(gpufi_min_int64(timeout_ns, INT64_MAX / 2));
      /* One more finds that there are no more. */
      l.count = timeout_ns == 0 ? gpufi_h5_outgoing_count(&f->outgoing) + 1 : 0;
    }
    const gpuf_status status = advance(f, &l, &error);
    const bool goes_on =
        status == GPUF_ERR_TIMEOUT || (status == GPUF_OK && until_copied && f->has_producer);
    if (goes_on) {
      if (status != GPUF_OK && err) {
        *err = error;
      }
      return status;
    }
    settle(f, status, &error);
  }
  if (f->status != GPUF_OK && err) {
    *err = f->error;
  }
  return f->status;
}

/* --- Calls ------------------------------------------------------------------- */

/* The library's own reference to the group in which the dataset is created. */
static gpuf_status open_location(gpuf_h5_future *f, hid_t location, gpuf_error *err) {
  gpufi_h5_enter(&f->session);
  gpuf_status status = gpufi_h5_check_location(&f->session, location, err);
  if (status == GPUF_OK && (f->location = f->session.api->Gopen2(location, ".", H5P_DEFAULT)) < 0) {
    status =
        gpufi_h5_fail(&f->session, err, "opening the group of dataset '%s' failed", f->path.text);
  }
  gpufi_h5_leave(&f->session);
  return status;
}

static gpuf_status begin_new(gpuf_h5_future *f, hid_t location, const char *name, gpuf_error *err) {
  gpuf_status status = gpufi_h5_path_init(&f->path, name, err);
  if (status == GPUF_OK) {
    status = open_location(f, location, err);
  }
  if (status == GPUF_OK) {
    f->is_new = true;
    status = gpufi_h5_create_and_inspect(&f->session, f->location, &f->path, &f->src, &f->dataset,
                                         &f->id, err);
  }
  return status == GPUF_OK ? start(f, NULL, err) : status;
}

static gpuf_status begin_region(gpuf_h5_future *f, hid_t id, const int64_t *from, gpuf_error *err) {
  gpuf_status status = gpufi_h5_inspect(&f->session, id, true, &f->dataset, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(&f->session);
  if (f->session.api->Iinc_ref(id) < 0) {
    status = gpufi_h5_fail(&f->session, err, "holding dataset '%s' open failed", f->dataset.name);
  } else {
    f->id = id;
  }
  gpufi_h5_leave(&f->session);
  return status == GPUF_OK ? start(f, from, err) : status;
}

/* Hand the future over, or end what has begun. */
static gpuf_status begun(gpuf_h5_future *f, gpuf_status status, gpuf_h5_future **future,
                         gpuf_error *err) {
  if (status == GPUF_OK) {
    *future = f;
    return GPUF_OK;
  }
  const gpuf_error none = {0};
  settle(f, status, err ? err : &none);
  release(f);
  return status;
}

gpuf_status gpuf_h5_write_async(gpuf_h5_id location, const char *name, const gpuf_tensor *src,
                                const gpuf_h5_options *options, gpuf_h5_future **future,
                                gpuf_error *err) {
  gpuf_status status;
  GPUFI_REQUIRE(future, err);
  *future = NULL;
  status = gpufi_h5_check_name(name, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpuf_h5_future *const f = create(src, options, &status, err);
  return f ? begun(f, begin_new(f, location, name, err), future, err) : status;
}

gpuf_status gpuf_h5_write_region_async(gpuf_h5_id dataset, const int64_t *start,
                                       const gpuf_tensor *src, const gpuf_h5_options *options,
                                       gpuf_h5_future **future, gpuf_error *err) {
  gpuf_status status;
  GPUFI_REQUIRE(future, err);
  *future = NULL;
  gpuf_h5_future *const f = create(src, options, &status, err);
  return f ? begun(f, begin_region(f, dataset, start, err), future, err) : status;
}

gpuf_status gpuf_h5_future_poll(gpuf_h5_future *future, bool *done, gpuf_error *err) {
  gpuf_error error = {0};
  GPUFI_REQUIRE(done, err);
  const gpuf_status status = wait_for(future, 0, false, &error);
  *done = status != GPUF_ERR_TIMEOUT;
  if (!*done) {
    return GPUF_OK;
  }
  if (status != GPUF_OK && err) {
    *err = error;
  }
  return status;
}

gpuf_status gpuf_h5_future_wait(gpuf_h5_future *future, int64_t timeout_ns, gpuf_error *err) {
  return wait_for(future, timeout_ns, false, err);
}

gpuf_status gpuf_h5_future_wait_copied(gpuf_h5_future *future, int64_t timeout_ns,
                                       gpuf_error *err) {
  return wait_for(future, timeout_ns, true, err);
}

void gpuf_h5_future_destroy(gpuf_h5_future *future) {
  if (!future || gpufi_check_process(future->process_id, NULL) != GPUF_OK) {
    return; /* a forked child's memory of it is its parent's, as the dataset is */
  }
  if (!future->is_settled && gpufi_in_kernel()) {
    return;
  }
  if (!future->is_settled) {
    gpuf_error error = {0};
    gpufi_h5_enter(&future->session);
    check_dataset(future, &error); /* forgets a dataset that was closed */
    gpufi_h5_leave(&future->session);
    settle(future, GPUF_ERR_STATE, &error);
  }
  release(future);
}
