/* The memory of snapshots: which mode there is room for. */
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/error.h"
#include "core/pinned.h"
#include "core/runtime.h"
#include "hdf5/checkpoint/encode.h"
#include "hdf5/checkpoint/snapshot.h"

#define PAGE_NBYTES ((size_t)4096)
#define PINNED_NBYTES_DEFAULT ((size_t)256 << 20)
/* Batches of default chunks fit, one behind the other. */
#define PINNED_NBYTES_MIN ((size_t)64 << 20)
#define HEADERS_NBYTES ((size_t)1 << 20)
/* Copies begin at multiples of 256 bytes. */
#define ALIGNMENT_RESERVE_NBYTES ((size_t)1 << 20)
/* So many have what they encode by before the first checkpoint. */
#define WRITERS_MAX 16
/* Less would hold too little of the state to be worth it. */
#define ENCODED_RATIO_MAX 4

/* What a ring takes of a state that is smaller than the ring would be. */
static size_t no_more_than_state(size_t nbytes, size_t state_nbytes) {
  const bool is_smaller = state_nbytes > 0 && state_nbytes < nbytes / 2;
  return is_smaller ? gpufi_min_nbytes(nbytes, 2 * state_nbytes + HEADERS_NBYTES) : nbytes;
}

static gpuf_status reserve_pinned(gpufi_checkpoint_snapshot *s,
                                  const gpuf_checkpoint_options *options, gpuf_error *err) {
  const size_t least_nbytes = no_more_than_state(PINNED_NBYTES_MIN, options->state_nbytes);
  size_t nbytes = options->host_max_nbytes ? options->host_max_nbytes : PINNED_NBYTES_DEFAULT;
  if (nbytes < least_nbytes) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "options.host_max_nbytes %zu is below %zu, which encoding on a device takes: "
                      "raise it, or leave it 0, or set options.uncompressed",
                      nbytes, least_nbytes);
  }
  nbytes = no_more_than_state(nbytes, options->state_nbytes);
  gpuf_status status = gpuf_pool_acquire(s->device, nbytes, &s->pinned, err);
  while (status == GPUF_ERR_NO_MEMORY && options->host_max_nbytes == 0 &&
         nbytes / 2 >= least_nbytes) {
    nbytes /= 2;
    status = gpuf_pool_acquire(s->device, nbytes, &s->pinned, err);
  }
  if (status == GPUF_OK) {
    s->pinned_nbytes = nbytes;
    s->queue.rings[GPUFI_CHECKPOINT_ON_HOST] =
        (gpufi_checkpoint_ring){.base = s->pinned, .nbytes = nbytes};
  }
  return status;
}

static gpuf_status reserve_device(gpufi_checkpoint_snapshot *s, size_t nbytes,
                                  gpuf_checkpoint_mode mode, gpuf_error *err) {
  void *d_memory;
  const gpuf_status status = gpuf_alloc(s->device, nbytes, &d_memory, err);
  if (status == GPUF_OK) {
    s->mode = mode;
    s->d_memory = d_memory;
    s->device_nbytes = nbytes;
    if (mode == GPUF_CHECKPOINT_DEVICE_ENCODED) {
      s->queue.rings[GPUFI_CHECKPOINT_ON_DEVICE] =
          (gpufi_checkpoint_ring){.base = s->d_memory, .nbytes = nbytes};
    }
  }
  return status;
}

static gpuf_status find_cap(const gpufi_checkpoint_snapshot *s,
                            const gpuf_checkpoint_options *options, size_t *cap_nbytes,
                            gpuf_error *err) {
  gpuf_device_info info = GPUF_DEVICE_INFO_INIT;
  *cap_nbytes = options->device_max_nbytes;
  if (*cap_nbytes != 0) {
    return GPUF_OK;
  }
  const gpuf_status status = gpuf_device_get_info(s->device, &info, err);
  *cap_nbytes = info.free_nbytes / 2;
  return status;
}

static gpuf_status no_room(size_t wanted_nbytes, size_t cap_nbytes, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_NO_DEVICE_MEMORY, 0,
                    "a snapshot on the device takes %zu bytes, and %zu may be reserved: choose "
                    "another mode, or raise options.device_max_nbytes",
                    wanted_nbytes, cap_nbytes);
}

/* The first mode that the options allow and that there is memory for; the pinned one always is. */
static gpuf_status choose(gpufi_checkpoint_snapshot *s, const gpuf_checkpoint_options *options,
                          gpuf_error *err) {
  const gpuf_checkpoint_mode mode = options->mode;
  const bool is_auto = mode == GPUF_CHECKPOINT_AUTO;
  const size_t state_nbytes = options->state_nbytes;
  size_t cap_nbytes;
  s->mode = GPUF_CHECKPOINT_PINNED;
  if (mode == GPUF_CHECKPOINT_PINNED || (is_auto && state_nbytes == 0)) {
    return GPUF_OK;
  }
  if (state_nbytes == 0 || state_nbytes > SIZE_MAX / 2) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "options.state_nbytes is %zu: a snapshot on the device needs the size of the "
                      "tensors there",
                      state_nbytes);
  }
  gpuf_status status = find_cap(s, options, &cap_nbytes, err);
  const size_t copy_nbytes = state_nbytes + ALIGNMENT_RESERVE_NBYTES;
  if (status == GPUF_OK && mode != GPUF_CHECKPOINT_DEVICE_ENCODED) {
    status = copy_nbytes <= cap_nbytes
                 ? reserve_device(s, copy_nbytes, GPUF_CHECKPOINT_DEVICE_COPY, err)
                 : no_room(copy_nbytes, cap_nbytes, err);
  }
  if (mode == GPUF_CHECKPOINT_DEVICE_ENCODED ||
      (is_auto && status == GPUF_ERR_NO_DEVICE_MEMORY && s->encodes)) {
    const size_t ring_nbytes = gpufi_min_nbytes(copy_nbytes, cap_nbytes);
    status = ring_nbytes >= state_nbytes / ENCODED_RATIO_MAX
                 ? reserve_device(s, ring_nbytes, GPUF_CHECKPOINT_DEVICE_ENCODED, err)
                 : no_room(state_nbytes / ENCODED_RATIO_MAX, cap_nbytes, err);
  }
  return is_auto && status == GPUF_ERR_NO_DEVICE_MEMORY ? GPUF_OK : status;
}

/* Copies within the device are encoded by the writers, each of which has a part of the state, while
 * the program goes on. In the other modes commit encodes, once the device has done what it had. */
static void prepare_writers(const gpufi_checkpoint_snapshot *s,
                            const gpuf_checkpoint_options *options) {
  const int64_t shape[] = {(int64_t)options->state_nbytes};
  const size_t shard_count = options->shard_count > 0 ? options->shard_count : 1;
  gpuf_tensor memory;
  if (s->mode == GPUF_CHECKPOINT_DEVICE_COPY &&
      gpuf_tensor_init(&memory, s->d_memory, s->device, GPUF_DTYPE_UINT8, 1, shape, NULL) ==
          GPUF_OK) {
    gpufi_checkpoint_encode_prepare(&memory, gpufi_min_nbytes(shard_count, WRITERS_MAX));
  }
}

gpuf_status gpufi_checkpoint_snapshot_open(gpufi_checkpoint_snapshot *s,
                                           const gpuf_checkpoint_options *options,
                                           gpuf_error *err) {
  gpufi_checkpoint_queue_init(&s->queue);
  s->mode = GPUF_CHECKPOINT_PINNED;
  s->device = options->device;
  s->encodes = !options->uncompressed;
  if (options->device.kind == GPUF_DEVICE_CPU) {
    return options->mode == GPUF_CHECKPOINT_AUTO || options->mode == GPUF_CHECKPOINT_PINNED
               ? GPUF_OK
               : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                            "options.mode %d is one of a device, and options.device is the CPU",
                            (int)options->mode);
  }
  gpuf_status status = gpufi_backend_for(options->device, &s->backend, err);
  if (status == GPUF_OK && options->mode == GPUF_CHECKPOINT_DEVICE_ENCODED && !s->encodes) {
    status = gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "options.mode encodes, and options.uncompressed is set: choose one");
  }
  if (status == GPUF_OK) {
    status = choose(s, options, err);
  }
  if (status == GPUF_OK && s->encodes) {
    status = reserve_pinned(s, options, err);
  }
  if (status == GPUF_OK && s->encodes) {
    prepare_writers(s, options);
  }
  return status;
}

void gpufi_checkpoint_host_free(gpufi_checkpoint_host *host) {
  if (host->base) {
    gpufi_unmap(host->base, host->nbytes);
  }
  *host = (gpufi_checkpoint_host){NULL, 0, 0};
}

gpuf_status gpufi_checkpoint_host_need(gpufi_checkpoint_host *host, size_t nbytes,
                                       gpuf_error *err) {
  host->used_nbytes = 0;
  if (nbytes <= host->nbytes) {
    return GPUF_OK;
  }
  gpufi_checkpoint_host_free(host);
  nbytes = gpufi_round_up(nbytes, PAGE_NBYTES);
  host->base = gpufi_map(nbytes);
  if (!host->base) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "no memory for %zu bytes of a snapshot on the host", nbytes);
  }
  host->nbytes = nbytes;
  return GPUF_OK;
}

void gpufi_checkpoint_snapshot_close(gpufi_checkpoint_snapshot *s) {
  gpufi_checkpoint_snapshot_release(s);
  if (s->d_memory) {
    gpuf_free(s->device, s->d_memory, NULL);
  }
  gpuf_pool_release(s->pinned, NULL);
  gpufi_checkpoint_host_free(&s->host);
  gpufi_checkpoint_queue_fini(&s->queue);
}

void gpufi_checkpoint_snapshot_release(gpufi_checkpoint_snapshot *s) {
  if (s->channel) {
    const bool failed =
        s->backend->stream_synchronize(s->device.index, s->channel->stream, NULL) != GPUF_OK;
    gpufi_channel_release(s->channel, failed);
  }
  s->channel = NULL;
  s->d_used_nbytes = 0;
  while (s->spills) {
    gpufi_checkpoint_spill *const spill = s->spills;
    s->spills = spill->next;
    gpufi_checkpoint_host_free(&spill->host);
    free(spill);
  }
}

size_t gpufi_checkpoint_snapshot_host_nbytes(const gpufi_checkpoint_snapshot *s) {
  return s->pinned_nbytes + s->host.nbytes;
}
