#include "hdf5/checkpoint/verify.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/crew.h"
#include "hdf5/checkpoint/manifest.h"
#include "hdf5/coding.h"
#include "hdf5/register.h"

static const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};

/* --- The manifest ------------------------------------------------------------ */

static gpuf_status open_dataset(gpufi_h5_session *session, hid_t file, const char *name,
                                hid_t *dataset, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  gpufi_h5_enter(session);
  *dataset = session->api->Dopen2(file, name, H5P_DEFAULT);
  if (*dataset < 0) {
    status = gpufi_h5_fail(session, err, "there is no dataset '%s'", name);
  }
  gpufi_h5_leave(session);
  return status;
}

static void close_dataset(gpufi_h5_session *session, hid_t dataset) {
  gpufi_h5_enter(session);
  gpufi_h5_close(session, dataset);
  gpufi_h5_leave(session);
}

/* It is stored as it is, so that it takes less than the file. */
static gpuf_status read_text(gpufi_h5_session *session, hid_t dataset, int64_t file_nbytes,
                             char **text, size_t *nbytes, gpuf_error *err) {
  gpuf_tensor found = {.dtype = GPUF_DTYPE_BOOL};
  gpuf_status status = gpuf_h5_describe(dataset, &found, &session->options, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (found.dtype != GPUF_DTYPE_UINT8 || found.ndim != 1 || found.shape[0] > file_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "dataset '" GPUFI_CHECKPOINT_MANIFEST "' is no manifest of a checkpoint");
  }
  *nbytes = (size_t)found.shape[0];
  *text = malloc(*nbytes + 1);
  if (!*text) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a manifest of %zu bytes", *nbytes);
  }
  status = gpuf_tensor_init(&found, *text, cpu, GPUF_DTYPE_UINT8, 1, found.shape, err);
  if (status == GPUF_OK) {
    found.data = *text;
    status = gpuf_h5_read_dataset(dataset, &found, &session->options, err);
  }
  return status;
}

/* Each chunk takes a byte or more. */
static gpuf_status check_sizes(const gpufi_checkpoint_contents *contents, int64_t file_nbytes,
                               gpuf_error *err) {
  for (size_t i = 0; i < contents->tensor_count; i++) {
    const gpufi_checkpoint_tensor *const t = &contents->tensors[i];
    if (t->digest.stored_nbytes > (uint64_t)file_nbytes ||
        (uint64_t)t->digest.chunk_count > t->digest.stored_nbytes) {
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                        "the manifest says that tensor '%s' has %" PRId64 " chunks in %" PRIu64
                        " bytes, and the file has %" PRId64 ": it is damaged",
                        t->name, t->digest.chunk_count, t->digest.stored_nbytes, file_nbytes);
    }
  }
  return GPUF_OK;
}

gpuf_status gpufi_checkpoint_read_manifest(gpufi_h5_session *session, hid_t file,
                                           int64_t file_nbytes, gpufi_checkpoint_contents *contents,
                                           gpuf_error *err) {
  char *text = NULL;
  size_t nbytes = 0;
  hid_t dataset;
  gpuf_status status = open_dataset(session, file, GPUFI_CHECKPOINT_MANIFEST, &dataset, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = read_text(session, dataset, file_nbytes, &text, &nbytes, err);
  close_dataset(session, dataset);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_manifest_parse(contents, text, nbytes, err);
  }
  if (status == GPUF_OK) {
    status = check_sizes(contents, file_nbytes, err);
  }
  free(text);
  return status;
}

/* --- Chunks ------------------------------------------------------------------ */

/* The chunks of a tensor's dataset, which are added up by several threads if `transfer` has their
 * places, and otherwise by the calling one. */
typedef struct summing {
  gpufi_h5_session *session;
  const gpufi_checkpoint_tensor *t; /* NULL: none */
  hid_t id;
  gpufi_h5_dataset dataset;
  gpufi_h5_transfer transfer; /* not for a dataset without chunks */
  gpufi_job job;
  int64_t next;          /* atomic: the chunk that the next thread takes */
  pthread_mutex_t mutex; /* guards what follows */
  gpufi_h5_digest digest;
  gpuf_status status; /* the first failure */
  gpuf_error error;
} summing;

static gpuf_status fail_chunk(const gpufi_h5_transfer *transfer, int64_t index, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                    "chunk at (%s) of dataset '%s' is missing or no chunk: the file is damaged",
                    gpufi_h5_transfer_position(transfer, index).text, transfer->dataset->name);
}

/* Read a chunk into its buffers and add it. What lies beyond the dataset's edge is 0 in the file,
 * and HDF5 leaves it out where it reads elements. */
static gpuf_status sum_chunk(const summing *s, gpufi_h5_chunk *chunk, int64_t index,
                             gpufi_h5_digest *digest, gpuf_error *err) {
  const gpufi_h5_transfer *const transfer = &s->transfer;
  const gpufi_h5_dataset *const dataset = transfer->dataset;
  if (transfer->direct.places && transfer->direct.places[index].offset == 0) {
    return fail_chunk(transfer, index, err);
  }
  if (!chunk->encoded) {
    memset(chunk->raw, 0, dataset->chunk_nbytes);
  }
  gpuf_status status = gpufi_h5_chunk_get(s->session, transfer, chunk, index, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_chunk_load(transfer, chunk, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  const void *const bytes = chunk->encoded ? chunk->encoded : chunk->raw;
  const size_t nbytes = chunk->has_elements ? dataset->chunk_nbytes : chunk->encoded_nbytes;
  if ((chunk->has_elements && chunk->encoded) || chunk->filter_mask != 0 ||
      !gpufi_h5_digest_add(digest, dataset, index, bytes, nbytes, false)) {
    return fail_chunk(transfer, index, err);
  }
  return GPUF_OK;
}

static bool chunk_init(gpufi_h5_chunk *chunk, const gpufi_h5_dataset *dataset) {
  const size_t encoded_nbytes = gpufi_h5_encoded_bound(dataset);
  memset(chunk, 0, sizeof(*chunk));
  chunk->raw = malloc(dataset->chunk_nbytes);
  chunk->encoded = encoded_nbytes ? malloc(encoded_nbytes) : NULL;
  return chunk->raw && (!encoded_nbytes || chunk->encoded);
}

static void chunk_fini(gpufi_h5_chunk *chunk) {
  free(chunk->raw);
  free(chunk->encoded);
}

/* Each thread does this. */
static void sum_chunks(void *arg) {
  summing *const s = arg;
  const int64_t total = s->transfer.grid.total;
  gpufi_h5_digest digest = {0};
  gpuf_error error = {0};
  gpufi_h5_chunk chunk;
  int64_t index;
  gpuf_status status =
      chunk_init(&chunk, s->transfer.dataset)
          ? GPUF_OK
          : gpufi_fail(&error, GPUF_ERR_NO_MEMORY, 0, "no memory for a chunk of %zu bytes",
                       s->transfer.dataset->chunk_nbytes);
  while (status == GPUF_OK && (index = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < total) {
    status = sum_chunk(s, &chunk, index, &digest, &error);
  }
  chunk_fini(&chunk);
  pthread_mutex_lock(&s->mutex);
  s->digest.sum += digest.sum;
  s->digest.chunk_count += digest.chunk_count;
  s->digest.stored_nbytes += digest.stored_nbytes;
  if (status != GPUF_OK && s->status == GPUF_OK) {
    s->status = status;
    s->error = error;
    __atomic_store_n(&s->next, total, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&s->mutex);
}

/* --- Tensors ----------------------------------------------------------------- */

/* A dataset of one element has no chunks. */
static gpuf_status sum_scalar(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                              gpufi_h5_digest *digest, gpuf_error *err) {
  _Alignas(16) unsigned char bytes[16];
  gpuf_tensor element;
  gpuf_status status = gpuf_tensor_init(&element, bytes, cpu, dataset->dtype, 0, NULL, err);
  if (status == GPUF_OK) {
    status = gpuf_h5_read_dataset(dataset->id, &element, &session->options, err);
  }
  if (status == GPUF_OK) {
    gpufi_h5_digest_add(digest, dataset, 0, bytes, gpuf_dtype_nbytes(dataset->dtype), false);
  }
  return status;
}

static bool is_described(const gpufi_h5_dataset *dataset, const gpuf_tensor *tensor) {
  return dataset->dtype == tensor->dtype && dataset->ndim == tensor->ndim &&
         memcmp(dataset->shape, tensor->shape, (size_t)tensor->ndim * sizeof(*tensor->shape)) == 0;
}

/* Whether the dataset, which has elements, is divided into so many chunks as the manifest says, and
 * a chunk is not larger than what it can hold: what is then taken for it is bounded by what was
 * written. */
static bool is_divided(const gpufi_h5_dataset *dataset, const gpufi_h5_box *box,
                       const gpufi_h5_digest *digest) {
  gpufi_h5_grid grid;
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    if (dataset->chunk[axis] < 1 || dataset->chunk[axis] > dataset->shape[axis]) {
      return false;
    }
  }
  gpufi_h5_grid_init(&grid, dataset->ndim, box, dataset->chunk, dataset->chunk);
  return grid.total == digest->chunk_count;
}

/* Begin to add up the elements; the crew goes on while HDF5 is asked about the next tensor. */
static gpuf_status sum_elements(summing *s, gpufi_crew *crew, int32_t thread_max, gpuf_error *err) {
  const gpuf_tensor *const tensor = &s->t->tensor;
  gpufi_h5_box box;
  if (tensor->ndim == 0) {
    return sum_scalar(s->session, &s->dataset, &s->digest, err);
  }
  if (gpuf_tensor_count(tensor) == 0) {
    return GPUF_OK;
  }
  if (s->dataset.route == GPUFI_H5_ROUTE_HDF5) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "dataset '%s' is stored otherwise than a checkpoint's", s->dataset.name);
  }
  const gpuf_status status = gpufi_h5_dataset_box(&s->dataset, NULL, tensor, "tensor", &box, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (!is_divided(&s->dataset, &box, &s->t->digest)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "dataset '%s' has other chunks than the manifest says", s->t->name);
  }
  gpufi_h5_transfer_init(&s->transfer, s->session, &s->dataset, &box, tensor, false);
  if (s->transfer.direct.places) {
    s->job = (gpufi_job){.run = sum_chunks, .arg = s, .thread_max = thread_max};
    gpufi_crew_post(crew, &s->job);
  } else {
    sum_chunks(s);
    gpufi_h5_leave(s->session);
  }
  return GPUF_OK;
}

static gpuf_status inspect(summing *s, gpuf_error *err) {
  gpufi_h5_enter(s->session);
  gpuf_status status = gpufi_h5_register(s->session, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_dataset_init(&s->dataset, s->session, s->id, err);
  }
  gpufi_h5_leave(s->session);
  if (status == GPUF_OK && !is_described(&s->dataset, &s->t->tensor)) {
    status =
        gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                   "dataset '%s' has another dtype or shape than the manifest says", s->t->name);
  }
  return status;
}

/* After a failure, too, gpufi_checkpoint_verify ends it. */
static gpuf_status begin_tensor(summing *s, gpufi_h5_session *session, hid_t file,
                                const gpufi_checkpoint_tensor *t, gpuf_error *err) {
  memset(s, 0, sizeof(*s));
  s->session = session;
  s->transfer.direct.fd = -1;
  const gpuf_status status = open_dataset(session, file, t->name, &s->id, err);
  if (status == GPUF_OK) {
    pthread_mutex_init(&s->mutex, NULL);
    s->t = t;
  }
  return status == GPUF_OK ? inspect(s, err) : status;
}

/* Wait until all is added up, and compare it. A failure before, `status`, is the outcome. */
static gpuf_status end_tensor(summing *s, gpufi_crew *crew, gpuf_status status, gpuf_error *err) {
  const gpufi_checkpoint_tensor *const t = s->t;
  const gpufi_h5_digest *const digest = &s->digest;
  if (!t) {
    return status;
  }
  gpufi_crew_finish(crew, &s->job);
  gpufi_h5_transfer_fini(&s->transfer);
  close_dataset(s->session, s->id);
  pthread_mutex_destroy(&s->mutex);
  s->t = NULL;
  if (status != GPUF_OK) {
    return status;
  }
  if (s->status != GPUF_OK) {
    return gpufi_fail(err, s->status, s->error.native_code, "%s", s->error.message);
  }
  if (digest->sum != t->digest.sum || digest->chunk_count != t->digest.chunk_count ||
      digest->stored_nbytes != t->digest.stored_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the chunks of dataset '%s' are not those that were written: the file is "
                      "damaged",
                      t->name);
  }
  return GPUF_OK;
}

/* No more than there are chunks. */
static int32_t threads_for(const gpufi_h5_session *session,
                           const gpufi_checkpoint_contents *contents) {
  const int32_t most = gpufi_h5_session_thread_count(session);
  int64_t chunk_count = 1;
  for (size_t i = 0; i < contents->tensor_count && chunk_count < most; i++) {
    chunk_count += contents->tensors[i].shard_parts ? 0 : contents->tensors[i].digest.chunk_count;
  }
  return chunk_count < most ? (int32_t)chunk_count : most;
}

gpuf_status gpufi_checkpoint_verify(gpufi_h5_session *session, hid_t file,
                                    const gpufi_checkpoint_contents *contents, gpuf_error *err) {
  const int32_t thread_count = threads_for(session, contents);
  gpuf_status status = GPUF_OK;
  gpufi_crew crew;
  int turn = 0;
  summing *const sums = calloc(2, sizeof(*sums)); /* large for a stack */
  if (!sums) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", 2 * sizeof(*sums));
  }
  gpufi_crew_init(&crew, thread_count - 1);
  for (size_t i = 0; i < contents->tensor_count && status == GPUF_OK; i++) {
    summing *const s = &sums[turn];
    if (contents->tensors[i].shard_parts) {
      continue;
    }
    turn = !turn;
    status = end_tensor(s, &crew, GPUF_OK, err);
    if (status == GPUF_OK) {
      status = begin_tensor(s, session, file, &contents->tensors[i], err);
    }
    if (status == GPUF_OK) {
      status = sum_elements(s, &crew, thread_count, err);
    }
  }
  status = end_tensor(&sums[turn], &crew, status, err);
  status = end_tensor(&sums[!turn], &crew, status, err);
  gpufi_crew_fini(&crew);
  free(sums);
  return status;
}
