/* Runs a kernel's thread blocks on the CPU: each thread is a fiber, and fibers change where they
 * wait for their warp or their block. A wait that cannot end, or that the threads of a warp do not
 * agree on, ends the process with a message.
 *
 * Thread-safety: runs on several threads at once do not touch each other. */
#ifndef GPUFI_TEST_SIMT_H
#define GPUFI_TEST_SIMT_H

#include <stddef.h>
#include <stdint.h>

#include <functional>

namespace simt {

constexpr uint32_t kWarpLanes = 32;

struct index {
  uint32_t x;
};

/* The thread that runs. */
struct position {
  index thread, block;
  uint32_t lane;
};
const position &self();

/* What the lanes of a mask have brought, in the order of the lanes. */
struct values {
  uint32_t mask;
  uint64_t value[kWarpLanes];

  uint64_t of(uint32_t lane) const; /* of a lane that is not in the mask: the process ends */

  template <typename Function> uint32_t fold(const Function &f) const {
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < kWarpLanes; lane++) {
      sum = mask >> lane & 1 ? f(sum, value[lane], lane) : sum;
    }
    return static_cast<uint32_t>(sum);
  }
};

/* Wait until every lane of the mask has come here, to the same operation; valid until this thread
 * waits again. */
const values &exchange(const char *operation, uint32_t mask, uint64_t value);

/* Wait until every thread of the block has come; returns how many brought other than 0. */
uint32_t wait_for_block(int value);

/* Run `kernel` in every thread of every block. The dynamic shared memory, of at least
 * `shared_nbytes`, holds no zeros at the start. */
void run(uint32_t block_count, uint32_t thread_count, size_t shared_nbytes,
         const std::function<void()> &kernel);

} // namespace simt

#endif
