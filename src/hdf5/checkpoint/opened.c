#include "hdf5/checkpoint/opened.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "core/channel.h"
#include "core/workers.h"
#include "hdf5/checkpoint/folder.h"
#include "hdf5/checkpoint/verify.h"
#include "hdf5/dataset.h"

/* Shards that are verified, and parts of one tensor that are read, side by side. */
#define SHARDS_AT_ONCE_MAX 4

static gpuf_status no_memory(gpuf_error *err, size_t count) {
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu shards", count);
}

/* --- Names ------------------------------------------------------------------- */

/* The path of a file beside the one at `path`. */
static gpuf_status path_beside(const char *path, const char *name, gpufi_checkpoint_path *beside,
                               gpuf_error *err) {
  const char *const slash = strrchr(path, '/');
  const int folder_nbytes = slash ? (int)(slash + 1 - path) : 0;
  const int nbytes =
      snprintf(beside->text, sizeof(beside->text), "%.*s%s", folder_nbytes, path, name);
  return nbytes >= 0 && (size_t)nbytes < sizeof(beside->text)
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_INVALID, 0, "the path of shard '%.200s' is too long", name);
}

/* --- A shard ----------------------------------------------------------------- */

static bool is_described(const gpufi_checkpoint_tensor *t, const gpufi_checkpoint_shard_part *part,
                         const gpufi_checkpoint_contents *found) {
  const gpufi_checkpoint_tensor *const dataset = gpufi_checkpoint_find_tensor(found, part->dataset);
  const int32_t ndim = t->tensor.ndim;
  return dataset && !dataset->shard_parts && dataset->tensor.dtype == t->tensor.dtype &&
         dataset->tensor.ndim == ndim &&
         memcmp(dataset->tensor.shape, part->shape, (size_t)ndim * sizeof(*part->shape)) == 0 &&
         dataset->digest.sum == part->digest.sum &&
         dataset->digest.chunk_count == part->digest.chunk_count &&
         dataset->digest.stored_nbytes == part->digest.stored_nbytes;
}

/* Whether the shard says of itself what the master says of it. */
static gpuf_status compare(const gpufi_checkpoint_contents *master, size_t index,
                           const gpufi_checkpoint_contents *found, const char *path,
                           gpuf_error *err) {
  const gpufi_checkpoint_shard *const shard = &master->shards[index];
  if (!found->self.name || memcmp(found->self.uuid, shard->uuid, sizeof(shard->uuid)) != 0) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "'%s' is no shard of this checkpoint, but another file: bring back the one "
                      "whose UUID is %016" PRIx64 "%016" PRIx64,
                      path, shard->uuid[0], shard->uuid[1]);
  }
  for (size_t i = 0; i < master->tensor_count; i++) {
    const gpufi_checkpoint_tensor *const t = &master->tensors[i];
    for (size_t k = 0; k < t->shard_part_count; k++) {
      if (t->shard_parts[k].shard == index && !is_described(t, &t->shard_parts[k], found)) {
        return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                          "shard '%s' holds something else of tensor '%s' than its master says",
                          path, t->name);
      }
    }
  }
  return GPUF_OK;
}

static gpuf_status verify_shard(const gpufi_checkpoint_contents *master, size_t index,
                                const gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                const char *path, gpuf_error *err) {
  gpufi_checkpoint_contents found = {0};
  const gpufi_checkpoint_shard *const shard = &master->shards[index];
  gpuf_status status =
      gpufi_checkpoint_read_manifest(session, file->id, (int64_t)shard->nbytes, &found, err);
  if (status == GPUF_OK) {
    status = compare(master, index, &found, path, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_verify(session, file->id, &found, err);
  }
  gpufi_checkpoint_contents_clear(&found);
  return status;
}

static gpuf_status open_shard(gpufi_checkpoint_opened *o, gpufi_h5_session *session,
                              const char *master_path, size_t index, gpuf_error *err) {
  const gpufi_checkpoint_shard *const shard = &o->contents.shards[index];
  gpufi_checkpoint_seal_mark mark;
  gpufi_checkpoint_path path;
  gpuf_error why = {0};
  gpuf_status status = path_beside(master_path, shard->name, &path, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_check_shard(path.text, &mark, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (mark.nbytes != shard->nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "its shard '%s' has %" PRIu64 " bytes, and had %" PRIu64
                      " when it was written: bring back that file",
                      path.text, mark.nbytes, shard->nbytes);
  }
  status = gpufi_checkpoint_file_open(&o->shards[index], session, path.text, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = verify_shard(&o->contents, index, &o->shards[index], session, path.text, &why);
  if (status == GPUF_OK && mark.sum != shard->seal_sum) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "its shard '%s' is not the file that was written: bring that one back",
                      path.text);
  }
  return status == GPUF_OK ? GPUF_OK
                           : gpufi_fail(err, status, why.native_code, "its shard '%s': %s",
                                        path.text, why.message);
}

/* What the threads that open shards share. */
typedef struct opening {
  gpufi_checkpoint_opened *opened;
  const gpufi_h5_context *context;
  gpuf_h5_options options;
  const char *master_path;
} opening;

static gpuf_status open_one(void *arg, size_t index, gpuf_error *err) {
  const opening *const all = arg;
  gpufi_h5_session session;
  gpufi_h5_context_set(all->context);
  gpuf_status status = gpufi_h5_session_init(&session, &all->options, err);
  if (status == GPUF_OK) {
    status = open_shard(all->opened, &session, all->master_path, index, err);
  }
  gpufi_h5_context_set(NULL);
  return status;
}

/* How many shards at once, and by how many threads each. */
static int32_t share_threads(const gpufi_h5_session *session, gpuf_h5_options *options) {
  const int32_t all = gpufi_h5_session_thread_count(session);
  const int32_t at_once = all < SHARDS_AT_ONCE_MAX ? all : SHARDS_AT_ONCE_MAX;
  *options = session->options;
  options->thread_count = all / at_once;
  return at_once;
}

/* While HDF5 says of one shard where its chunks lie, those of others are read. */
static gpuf_status open_shards(gpufi_checkpoint_opened *o, const gpufi_h5_session *session,
                               const char *path, gpuf_error *err) {
  const size_t count = o->contents.shard_count;
  if (count == 0) {
    return GPUF_OK;
  }
  o->shards = calloc(count, sizeof(*o->shards));
  if (!o->shards) {
    return no_memory(err, count);
  }
  for (size_t i = 0; i < count; i++) {
    o->shards[i].id = H5I_INVALID_HID;
  }
  opening all = {.opened = o, .context = session->context, .master_path = path};
  const int32_t at_once = share_threads(session, &all.options);
  const gpuf_status status = gpufi_workers_each(count, at_once, open_one, &all, err);
  gpufi_h5_context_set(session->context); /* this thread has opened shards, too */
  return status;
}

/* --- All --------------------------------------------------------------------- */

static gpuf_status check_open(const gpufi_checkpoint_opened *o, gpufi_h5_session *session,
                              gpuf_error *err) {
  gpuf_status status = gpufi_checkpoint_file_check_open(&o->master, session, err);
  for (size_t i = 0; o->shards && i < o->contents.shard_count && status == GPUF_OK; i++) {
    if (o->shards[i].id >= 0) {
      status = gpufi_checkpoint_file_check_open(&o->shards[i], session, err);
    }
  }
  return status;
}

/* After a failure: what the system refused is the cause, or else that HDF5 was closed. Otherwise
 * `status`, whose message is in `err`, is. */
static gpuf_status cause_of(const gpufi_checkpoint_opened *o, gpufi_h5_session *session,
                            gpuf_status status, gpuf_error *err) {
  gpuf_status cause = gpufi_checkpoint_file_error(&o->master, err);
  for (size_t i = 0; o->shards && i < o->contents.shard_count && cause == GPUF_OK; i++) {
    cause = gpufi_checkpoint_file_error(&o->shards[i], err);
  }
  cause = cause == GPUF_OK ? check_open(o, session, err) : cause;
  return cause == GPUF_OK ? status : cause;
}

static void close_file(gpufi_checkpoint_file *file, gpufi_h5_session *session) {
  if (file->id >= 0) {
    gpufi_checkpoint_file_close(file, session, "", NULL);
  }
}

void gpufi_checkpoint_opened_close(gpufi_checkpoint_opened *o, gpufi_h5_session *session) {
  close_file(&o->master, session);
  for (size_t i = 0; o->shards && i < o->contents.shard_count; i++) {
    close_file(&o->shards[i], session);
  }
  free(o->shards);
  o->shards = NULL;
  gpufi_checkpoint_contents_clear(&o->contents);
}

gpuf_status gpufi_checkpoint_opened_open(gpufi_checkpoint_opened *o, gpufi_h5_session *session,
                                         const char *path, int64_t step, gpuf_error *err) {
  gpufi_checkpoint_seal_mark mark;
  /* HDF5 need not be entered for that, and cannot be trusted with a damaged file. */
  gpuf_status status = gpufi_checkpoint_check_file(path, &mark, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpufi_checkpoint_file_open(&o->master, session, path, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpufi_checkpoint_read_manifest(session, o->master.id, (int64_t)mark.nbytes, &o->contents,
                                          err);
  if (status == GPUF_OK && (o->contents.step != step || o->contents.self.name)) {
    status =
        gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "'%s' is %s of step %" PRId64 ": it was renamed", path,
                   o->contents.self.name ? "a shard" : "the checkpoint", o->contents.step);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_verify(session, o->master.id, &o->contents, err);
  }
  if (status == GPUF_OK) {
    status = open_shards(o, session, path, err);
  }
  status = status == GPUF_OK ? check_open(o, session, err) : cause_of(o, session, status, err);
  if (status != GPUF_OK) {
    gpufi_checkpoint_opened_close(o, session);
  }
  return status;
}

/* --- Reading ----------------------------------------------------------------- */

/* Where HDF5 was closed meanwhile, its identifier may be that of something else by now: reading
 * fails in any way, and there is nothing to close. */
static gpuf_status end_reading(const gpufi_checkpoint_opened *o, gpufi_h5_session *session,
                               hid_t dataset, gpuf_status status, gpuf_error *err) {
  gpuf_error lost;
  if (check_open(o, session, &lost) != GPUF_OK) {
    return status == GPUF_OK ? GPUF_OK
                             : gpufi_fail(err, lost.status, lost.native_code, "%s", lost.message);
  }
  gpufi_h5_enter(session);
  gpufi_h5_close(session, dataset);
  gpufi_h5_leave(session);
  return status == GPUF_ERR_HDF5 ? cause_of(o, session, status, err) : status;
}

static gpuf_status read_dataset(gpufi_checkpoint_opened *o, gpufi_h5_session *session, hid_t file,
                                const char *name, const int64_t *start, const gpuf_tensor *tensor,
                                gpuf_error *err) {
  gpuf_status status = check_open(o, session, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(session);
  const hid_t dataset = session->api->Dopen2(file, name, H5P_DEFAULT);
  if (dataset < 0) {
    status = gpufi_h5_fail(session, err, "opening dataset '%s' failed", name);
  }
  gpufi_h5_leave(session);
  if (status != GPUF_OK) {
    return cause_of(o, session, status, err);
  }
  status = gpuf_h5_read_region(dataset, start, tensor, &session->options, err);
  return end_reading(o, session, dataset, status, err);
}

/* What a part and the box of `tensor` at `start` have in common: *in_part is where it begins in the
 * part, and `box` where it lies in the tensor. False: nothing. */
static bool intersect(const gpufi_checkpoint_shard_part *part, const int64_t *start,
                      const gpuf_tensor *tensor, int64_t *in_part, gpufi_h5_box *box) {
  memset(box, 0, sizeof(*box));
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    const int64_t begin = part->start[axis] > start[axis] ? part->start[axis] : start[axis];
    const int64_t part_end = part->start[axis] + part->shape[axis];
    const int64_t tensor_end = start[axis] + tensor->shape[axis];
    const int64_t end = part_end < tensor_end ? part_end : tensor_end;
    if (end <= begin) {
      return false;
    }
    in_part[axis] = begin - part->start[axis];
    box->start[axis] = begin - start[axis];
    box->shape[axis] = end - begin;
  }
  return true;
}

/* What the threads that read a tensor's parts share. */
typedef struct parts_reading {
  gpufi_checkpoint_opened *opened;
  const gpufi_h5_context *context;
  gpuf_h5_options options;
  const gpufi_checkpoint_tensor *stored;
  const int64_t *start;
  const gpuf_tensor *tensor;
} parts_reading;

static gpuf_status read_part(void *arg, size_t index, gpuf_error *err) {
  const parts_reading *const r = arg;
  const gpufi_checkpoint_shard_part *const part = &r->stored->shard_parts[index];
  gpuf_tensor place = *r->tensor;
  int64_t in_part[GPUF_NDIM_MAX];
  gpufi_h5_session session;
  gpufi_h5_box box;
  if (!intersect(part, r->start, r->tensor, in_part, &box)) {
    return GPUF_OK;
  }
  gpuf_status status = gpufi_h5_narrow(&place, &box, NULL, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_context_set(r->context);
  status = gpufi_h5_session_init(&session, &r->options, err);
  if (status == GPUF_OK) {
    status = read_dataset(r->opened, &session, r->opened->shards[part->shard].id, part->dataset,
                          in_part, &place, err);
  }
  gpufi_h5_context_set(NULL);
  return status;
}

/* A shard's first chunks come and its last ones leave while another shard's fill the link. */
static gpuf_status read_parts(gpufi_checkpoint_opened *o, const gpufi_h5_session *session,
                              const gpufi_checkpoint_tensor *stored, const int64_t *start,
                              const gpuf_tensor *tensor, gpuf_error *err) {
  gpuf_tensor named = *tensor; /* its stream, in each of the threads */
  gpufi_channel *keeper = NULL;
  parts_reading reading = {
      .opened = o, .context = session->context, .stored = stored, .start = start, .tensor = &named};
  gpuf_status status = gpufi_channel_name_stream_of(&named, &keeper, err);
  if (status == GPUF_OK) {
    const int32_t at_once = share_threads(session, &reading.options);
    status = gpufi_workers_each(stored->shard_part_count, at_once, read_part, &reading, err);
    gpufi_h5_context_set(session->context); /* this thread has read parts, too */
  }
  gpufi_channel_release(keeper, status != GPUF_OK);
  return status;
}

gpuf_status gpufi_checkpoint_opened_read(gpufi_checkpoint_opened *o, gpufi_h5_session *session,
                                         const gpufi_checkpoint_tensor *stored,
                                         const int64_t *start, const gpuf_tensor *tensor,
                                         gpuf_error *err) {
  gpufi_h5_dataset whole = {.dtype = stored->tensor.dtype, .ndim = stored->tensor.ndim};
  gpufi_h5_box box;
  if (!stored->shard_parts) {
    return read_dataset(o, session, o->master.id, stored->name, start, tensor, err);
  }
  snprintf(whole.name, sizeof(whole.name), "%s", stored->name);
  gpufi_text_make_utf8(whole.name);
  memcpy(whole.shape, stored->tensor.shape, sizeof(whole.shape));
  const gpuf_status status = gpufi_h5_dataset_box(&whole, start, tensor, "destination", &box, err);
  return status == GPUF_OK ? read_parts(o, session, stored, box.start, tensor, err) : status;
}
