/* A launch, and a thread block of it that is under way. */
#ifndef GPUFI_TEST_CUDA_EMULATION_THREAD_BLOCK_H
#define GPUFI_TEST_CUDA_EMULATION_THREAD_BLOCK_H

#include <vector>

#include "emulation.h"

namespace emulation {

/* Without a thread block that ends, a launch makes no more switches than these: threads that only
 * wait for memory make them for ever. */
constexpr uint64_t kSwitchesMax = uint64_t{1} << 30;

struct grid_launch {
  dim3 grid, threads;
  size_t shared_nbytes;
  const void *address;
  const std::function<void()> *kernel;
  uint64_t seed;
  uint64_t random_state;
  uint64_t switch_count; /* since the last thread block ended */
  context scheduler;     /* whoever launched */

  uint32_t below(uint32_t limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return static_cast<uint32_t>((random_state >> 32) * limit >> 32);
  }
};

/* A place for a thread block that is under way. */
struct resident {
  grid_launch *of;
  uint3 block;
  void *arena; /* of its threads' stacks */
  uint32_t ready_count, live_count;
  uint32_t arrived_count, true_count;               /* at the barrier that is next */
  place barrier;                                    /* where the first came to it */
  uint32_t waiting_count[kThreadsMax / kWarpLanes]; /* lanes of each warp that are at_warp */
  fiber *ready[kThreadsMax];
  uint32_t thread_count;
  std::vector<fiber> threads;
  std::vector<unsigned char> shared; /* the shared memory, while another one runs */
};

/* Make every thread of a thread block ready. */
void begin_thread_block(resident *r, uint3 block);
/* Run its threads until it gives its turn away or none is left: live_count says which. */
void resume_thread_block(resident *r);

} // namespace emulation

#endif
