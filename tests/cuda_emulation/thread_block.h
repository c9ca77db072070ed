/* A launch, and a thread block of it that is under way. */
#ifndef GPUFI_TEST_CUDA_EMULATION_THREAD_BLOCK_H
#define GPUFI_TEST_CUDA_EMULATION_THREAD_BLOCK_H

#include <condition_variable>
#include <mutex>
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

  /* Of the resident that runs, which is the only one that touches them. */
  uint64_t random_state;
  uint64_t next_block;
  uint64_t switch_count;       /* since the last thread block ended */
  std::vector<resident *> all; /* that have not ended */

  std::mutex lock;
  resident *running; /* guarded by the lock; the conditions of residents say that it has changed */

  uint32_t below(uint32_t limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return static_cast<uint32_t>((random_state >> 32) * limit >> 32);
  }
};

/* Runs thread blocks of a launch, one after the other, on a thread of its own. */
struct resident {
  grid_launch *of;
  std::condition_variable turn;
  uint32_t thread_count;
  uint32_t ready_count, live_count;
  uint32_t arrived_count, true_count;               /* at the barrier that is next */
  place barrier;                                    /* where the first came to it */
  uint32_t waiting_count[kThreadsMax / kWarpLanes]; /* lanes of each warp that are at_warp */
  fiber *ready[kThreadsMax];
  fiber *threads[kThreadsMax];
  context own;
};

/* Run one thread block to its end, on the calling thread. */
void run_thread_block(resident *r, uint3 number);
/* Let another resident of the launch run, and return when this one's turn has come. */
void give_turn(resident *r);

} // namespace emulation

#endif
