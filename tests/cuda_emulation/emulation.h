/* Runs kernels on the CPU. Each thread of a thread block is a fiber. Fibers change where threads
 * wait for each other, in an order that depends on a seed, so that a result which depends on the
 * order shows; so do they, now and then, at atomics. Up to kResidentMax thread blocks are under way
 * at once and take turns too; they begin in the order of their numbers. A launch with the same seed
 * does the same again.
 *
 * What CUDA leaves undefined ends the process with a message that says where: a wait that never
 * ends, threads that wait at different places of the source for each other, a lane that is named
 * in a mask and has returned, a value of a lane that is not in the mask. Shared memory holds
 * garbage at the start of each thread block.
 *
 * Thread-safety: any thread; a launch runs on the one that calls. */
#ifndef GPUFI_TEST_CUDA_EMULATION_EMULATION_H
#define GPUFI_TEST_CUDA_EMULATION_EMULATION_H

#include <stddef.h>
#include <stdint.h>

#include <functional>

#include "fiber.h"

struct uint3 {
  uint32_t x, y, z;
};

struct dim3 {
  uint32_t x, y, z;
  constexpr dim3(uint32_t x_ = 1, uint32_t y_ = 1, uint32_t z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace emulation {

constexpr uint32_t kWarpLanes = 32;
constexpr uint32_t kThreadsMax = kStackCount;
constexpr uint32_t kResidentMax = 4;
constexpr size_t kSharedNbytesMax = size_t{227} << 10; /* of a thread block, as on an H200 */

/* A call in the source of a kernel. */
struct place {
  const char *operation, *file;
  int line;
};

struct resident;

enum class phase { ready, at_warp, at_barrier, done };

/* A thread of a thread block, which has the stack of its number. */
struct fiber {
  uint3 thread_index, block_index;
  dim3 block_dim, grid_dim;
  uint32_t number, lane; /* in the thread block; in the warp */
  resident *where;
  phase now;
  place at;      /* while it waits */
  uint32_t mask; /* while it is at_warp, with what it brought: */
  uint64_t value, operand;
  uint64_t result; /* of what it waited for */
  context own;     /* while it does not run */
};

/* The thread block's arena begins with the address of its fibers. */
inline fiber &self() {
  return (*static_cast<fiber **>(this_arena()))[this_stack()];
}

/* The lanes of a mask who have come to the same operation. */
class lanes {
public:
  lanes(fiber *of_warp, uint32_t mask) : of_warp_(of_warp), mask_(mask) {}

  /* What a lane brought. That it is in the mask is checked for `reader`. */
  uint64_t value(uint32_t lane, const fiber &reader) const;
  template <typename Function> void each(const Function &f) const {
    for (uint32_t rest = mask_; rest != 0; rest &= rest - 1) {
      f(of_warp_[__builtin_ctz(rest)]);
    }
  }

private:
  fiber *of_warp_;
  uint32_t mask_;
};

/* Wait until every lane of the mask has come here; the last one calls `resolve`, which sets the
 * result of every lane. Returns the calling lane's. */
uint64_t meet(const place &at, uint32_t mask, uint64_t value, uint64_t operand,
              void (*resolve)(const lanes &all));

/* Wait until every thread of the thread block that has not returned has come; returns how many
 * brought true. */
uint32_t wait_at_barrier(const place &at, bool value);

/* Let others run now: what a thread that waits for memory must call. */
void yield();
/* The same, at random and seldom. */
void may_yield();

/* Run `kernel`, whose address is `address`, in every thread of the grid. */
void launch(dim3 grid, dim3 threads, size_t shared_nbytes, const void *address,
            const std::function<void()> &kernel);

/* End the process with a message and where the calling thread is. */
[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(const place *at, const char *format,
                                                             ...);

} // namespace emulation

#endif
