#include "server/replay.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

gpuf_status gpufi_replay_init(gpufi_replay *replay, uint32_t capacity, gpuf_error *err) {
  replay->capacity = capacity;
  replay->seen_count = 0;
  replay->digests = calloc(capacity, sizeof(*replay->digests));
  replay->heads = calloc(capacity, sizeof(*replay->heads));
  replay->nexts = calloc(capacity, sizeof(*replay->nexts));
  if (!replay->digests || !replay->heads || !replay->nexts) {
    gpufi_replay_fini(replay);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to remember %u signatures", capacity);
  }
  return GPUF_OK;
}

void gpufi_replay_fini(gpufi_replay *replay) {
  free(replay->digests);
  free(replay->heads);
  free(replay->nexts);
  memset(replay, 0, sizeof(*replay));
}

static uint32_t *chain_of(gpufi_replay *replay, const uint8_t *digest) {
  uint32_t start;
  memcpy(&start, digest, sizeof(start));
  return &replay->heads[start & (replay->capacity - 1)];
}

static void forget(gpufi_replay *replay, uint32_t index) {
  uint32_t *link = chain_of(replay, replay->digests[index]);
  while (*link != index + 1) {
    link = &replay->nexts[*link - 1];
  }
  *link = replay->nexts[index];
}

bool gpufi_replay_note(gpufi_replay *replay, const uint8_t digest[GPUFI_DIGEST_NBYTES]) {
  uint32_t *chain = chain_of(replay, digest);
  for (uint32_t i = *chain; i; i = replay->nexts[i - 1]) {
    if (memcmp(replay->digests[i - 1], digest, GPUFI_DIGEST_NBYTES) == 0) {
      return false;
    }
  }
  const uint32_t index = (uint32_t)(replay->seen_count % replay->capacity);
  if (replay->seen_count >= replay->capacity) {
    forget(replay, index);
  }
  memcpy(replay->digests[index], digest, GPUFI_DIGEST_NBYTES);
  replay->nexts[index] = *chain;
  *chain = index + 1;
  replay->seen_count++;
  return true;
}
