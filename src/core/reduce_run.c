/* Running a reduction: where the tensor lies, then its result through pinned memory. */
#include <stdlib.h>
#include <string.h>

#include "backend/host/reduce.h"
#include "core/error.h"
#include "core/lane.h"
#include "core/reduce.h"
#include "core/runtime.h"

#define ALIGNMENT ((size_t)256)

static size_t aligned(size_t nbytes) {
  return (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t edges_nbytes(const gpufi_reduce *job) {
  return job->kind == GPUFI_REDUCE_HISTOGRAM ? ((size_t)job->bin_count + 1) * sizeof(double) : 0;
}

static int64_t result_cell_count(const gpufi_reduce *job) {
  return job->kind == GPUFI_REDUCE_HISTOGRAM ? job->bin_count : job->cell_count;
}

static gpuf_status run_on_cpu(const gpufi_reduce *job, const char *base, const double *edges,
                              const gpufi_reduce_sink *sink, gpuf_error *err) {
  const size_t result_nbytes = gpufi_reduce_result_nbytes(job);
  char *result = malloc(result_nbytes + edges_nbytes(job));
  if (!result) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for %zu bytes of results",
                      result_nbytes + edges_nbytes(job));
  }
  if (edges) {
    memcpy(result + result_nbytes, edges, edges_nbytes(job));
  }
  gpufi_host_reduce_compute(job, base, result);
  sink->head(sink->context, (const gpufi_reduce_head *)result);
  sink->cells(sink->context, result + sizeof(gpufi_reduce_head), 0, result_cell_count(job));
  free(result);
  return GPUF_OK;
}

/* A device run: the block and the pieces of it that are on their way. */
typedef struct device_run {
  const gpufi_reduce *job;
  const gpufi_reduce_sink *sink;
  gpufi_lane *lane;
  char *d_result;
  size_t cell_nbytes;
  int64_t cell_count;
  int64_t next_cell; /* the first that no piece has taken */
  int64_t piece_first[GPUFI_LANE_SLOT_COUNT];
  int64_t piece_count[GPUFI_LANE_SLOT_COUNT]; /* cells under way in a slot; -1: none */
} device_run;

/* The piece that starts at cell 0 brings the head along. */
static gpuf_status piece_start(device_run *run, int slot_index, gpuf_error *err) {
  gpufi_lane *lane = run->lane;
  gpufi_slot *slot = &lane->slots[slot_index];
  const int64_t first = run->next_cell;
  const size_t head = first == 0 ? sizeof(gpufi_reduce_head) : 0;
  const int64_t room = (int64_t)((GPUFI_LANE_BUFFER_NBYTES - head) / run->cell_nbytes);
  const int64_t left = run->cell_count - first;
  const int64_t count = left < room ? left : room;
  const char *d_from =
      run->d_result + sizeof(gpufi_reduce_head) - head + (size_t)first * run->cell_nbytes;
  gpuf_status status = lane->backend->copy(lane->device.index, slot->staging, d_from,
                                           head + (size_t)count * run->cell_nbytes, GPUFI_TO_HOST,
                                           lane->stream, err);
  if (status == GPUF_OK) {
    status = lane->backend->event_record(lane->device.index, slot->copied, lane->stream, err);
  }
  run->piece_first[slot_index] = first;
  run->piece_count[slot_index] = count;
  run->next_cell += count;
  return status;
}

static gpuf_status piece_finish(device_run *run, int slot_index, gpuf_error *err) {
  gpufi_slot *slot = &run->lane->slots[slot_index];
  const int64_t first = run->piece_first[slot_index], count = run->piece_count[slot_index];
  const gpuf_status status =
      run->lane->backend->event_wait(run->lane->device.index, slot->copied, err);
  const char *cells = slot->staging;
  if (status != GPUF_OK) {
    return status;
  }
  if (first == 0) {
    run->sink->head(run->sink->context, slot->staging);
    cells += sizeof(gpufi_reduce_head);
  }
  run->sink->cells(run->sink->context, cells, first, count);
  run->piece_count[slot_index] = -1;
  return GPUF_OK;
}

static gpuf_status receive(device_run *run, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  int slot = 0;
  for (int i = 0; i < GPUFI_LANE_SLOT_COUNT; i++) {
    run->piece_count[i] = -1;
  }
  while (status == GPUF_OK && run->next_cell < run->cell_count) {
    if (run->piece_count[slot] >= 0) {
      status = piece_finish(run, slot, err);
    }
    if (status == GPUF_OK) {
      status = piece_start(run, slot, err);
    }
    slot = (slot + 1) % GPUFI_LANE_SLOT_COUNT;
  }
  for (int i = 0; i < GPUFI_LANE_SLOT_COUNT && status == GPUF_OK; i++) {
    if (run->piece_count[slot] >= 0) {
      status = piece_finish(run, slot, err);
    }
    slot = (slot + 1) % GPUFI_LANE_SLOT_COUNT;
  }
  return status;
}

/* The edges fit a staging buffer: GPUF_HISTOGRAM_BINS_MAX sees to it. */
static gpuf_status send_edges(device_run *run, const double *edges, gpuf_error *err) {
  gpufi_lane *lane = run->lane;
  const size_t nbytes = edges_nbytes(run->job);
  if (!edges) {
    return GPUF_OK;
  }
  memcpy(lane->slots[0].staging, edges, nbytes);
  return lane->backend->copy(lane->device.index,
                             run->d_result + gpufi_reduce_result_nbytes(run->job),
                             lane->slots[0].staging, nbytes, GPUFI_TO_DEVICE, lane->stream, err);
}

static gpuf_status run_on_lane(device_run *run, const gpuf_tensor *src, const char *base,
                               const double *edges, gpuf_error *err) {
  const gpufi_backend *backend = run->lane->backend;
  const size_t block_nbytes =
      aligned(gpufi_reduce_result_nbytes(run->job) + edges_nbytes(run->job));
  const size_t scratch_nbytes = backend->reduce_scratch_nbytes(run->job, base);
  gpuf_status status = gpufi_lane_need_staging(run->lane, err);
  if (status == GPUF_OK) {
    status = gpufi_lane_need_workspace(run->lane, block_nbytes + scratch_nbytes, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_lane_join(run->lane, src->stream, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  run->d_result = run->lane->d_workspace;
  status = send_edges(run, edges, err);
  if (status == GPUF_OK) {
    status = backend->reduce(src->device.index, run->job, base, run->d_result,
                             run->d_result + block_nbytes, run->lane->stream, err);
  }
  return status == GPUF_OK ? receive(run, err) : status;
}

gpuf_status gpufi_reduce_run(const gpufi_reduce *job, const gpuf_tensor *src, const char *base,
                             const double *edges, const gpufi_reduce_sink *sink, gpuf_error *err) {
  const gpufi_backend *backend;
  if (src->device.kind == GPUF_DEVICE_CPU) {
    return run_on_cpu(job, base, edges, sink, err);
  }
  device_run run = {
      .job = job,
      .sink = sink,
      .cell_nbytes = gpufi_reduce_cell_nbytes(job),
      .cell_count = result_cell_count(job),
  };
  gpuf_status status = gpufi_backend_for(src->device, &backend, err);
  if (status == GPUF_OK) {
    status = gpufi_lane_acquire(backend, src->device, &run.lane, err);
  }
  if (status == GPUF_OK) {
    status = run_on_lane(&run, src, base, edges, err);
    gpufi_lane_release(run.lane, status != GPUF_OK);
  }
  return status;
}
