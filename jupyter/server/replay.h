/* The digests that were seen last, in bounded memory. One thread at a time. */
#ifndef GPUFI_SERVER_REPLAY_H
#define GPUFI_SERVER_REPLAY_H

#include <gpufetch/gpufetch.h>

#define GPUFI_DIGEST_NBYTES 32

/* A ring of digests; those that begin alike are also linked in a chain. */
typedef struct gpufi_replay {
  uint32_t capacity;   /* a power of two */
  uint64_t seen_count; /* the next is stored at seen_count % capacity */
  uint8_t (*digests)[GPUFI_DIGEST_NBYTES];
  uint32_t *heads; /* by the first bytes of a digest: index + 1 of the newest, or 0 */
  uint32_t *nexts; /* of each digest: index + 1 of the next in its chain, or 0 */
} gpufi_replay;

gpuf_status gpufi_replay_init(gpufi_replay *replay, uint32_t capacity, gpuf_error *err);
void gpufi_replay_fini(gpufi_replay *replay);
/* Remember `digest`, in place of the oldest one if the ring is full. False if it is known. */
bool gpufi_replay_note(gpufi_replay *replay, const uint8_t digest[GPUFI_DIGEST_NBYTES]);

#endif
