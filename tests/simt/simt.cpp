#include "simt.h"

#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <memory>
#include <vector>

namespace simt {

constexpr size_t kSharedNbytesMax = 227 << 10; /* of an H200 */

} // namespace simt

namespace gpufi {

/* As launch.cuh declares it. */
extern thread_local uint4 dynamic_shared_bytes[];
thread_local uint4 dynamic_shared_bytes[simt::kSharedNbytesMax / sizeof(uint4)];

} // namespace gpufi

namespace simt {

namespace {

constexpr uint32_t kThreadsMax = 1024;
constexpr size_t kStackNbytes = 64 << 10;
constexpr int kPoison = 0xc5;

enum class phase { ready, at_warp, at_block, done };

struct fiber {
  position where;
  phase now;
  bool has_started;
  const char *operation; /* while at_warp, with its mask and value */
  uint32_t mask;
  uint64_t value;
  values received;
  jmp_buf context; /* while it has started and does not run */
};

/* Pages that no fiber has used yet take no memory. */
struct stack_memory {
  unsigned char *const memory =
      static_cast<unsigned char *>(mmap(nullptr, kThreadsMax *kStackNbytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  stack_memory() {
    if (memory == MAP_FAILED) {
      abort();
    }
  }
  ~stack_memory() {
    munmap(memory, kThreadsMax * kStackNbytes);
  }
};

struct block {
  stack_memory stacks;
  std::vector<fiber> fibers;
  std::vector<uint32_t> ready; /* numbers of fibers */
  fiber *running;
  uint32_t live_count;
  uint32_t arrived_count, nonzero_count; /* at the barrier that is next */
  uint32_t result;                       /* of the barrier that was last */
  const std::function<void()> *kernel;
  jmp_buf scheduler;
  uint64_t random_state = 1;
};

block &the_block() {
  static thread_local const std::unique_ptr<block> instance(new block);
  return *instance;
}

[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *format, ...) {
  const fiber *const f = the_block().running;
  va_list arguments;
  va_start(arguments, format);
  fputs("simt: ", stderr);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  if (f) {
    fprintf(stderr, " (block %u, thread %u)", f->where.block.x, f->where.thread.x);
  }
  fputs("\n", stderr);
  abort();
}

uint32_t number_of(const fiber &f) {
  return f.where.thread.x;
}

void make_ready(block &b, fiber &f) {
  f.now = phase::ready;
  b.ready.push_back(number_of(f));
}

/* --- turns ----------------------------------------------------------------------- */

void release_barrier(block &b) {
  b.result = b.nonzero_count;
  b.arrived_count = b.nonzero_count = 0;
  for (fiber &f : b.fibers) {
    if (f.now == phase::at_block) {
      make_ready(b, f);
    }
  }
}

void fiber_main() {
  block &b = the_block();
  (*b.kernel)();
  b.running->now = phase::done;
  if (--b.live_count > 0 && b.arrived_count == b.live_count) {
    release_barrier(b);
  }
  _longjmp(b.scheduler, 1);
}

void start_fiber(block &b, fiber &f) {
  ucontext_t context;
  f.has_started = true;
  getcontext(&context);
  context.uc_stack.ss_sp = b.stacks.memory + number_of(f) * kStackNbytes;
  context.uc_stack.ss_size = kStackNbytes;
  context.uc_link = nullptr;
  makecontext(&context, fiber_main, 0);
  setcontext(&context);
}

/* Until it waits or is done. */
void resume(block &b, fiber &f) {
  b.running = &f;
  if (_setjmp(b.scheduler) == 0) {
    if (f.has_started) {
      _longjmp(f.context, 1);
    }
    start_fiber(b, f);
  }
  b.running = nullptr;
}

/* Let others run until this fiber's turn comes; somebody has made it ready, or will. */
void give_way(block &b) {
  if (_setjmp(b.running->context) == 0) {
    _longjmp(b.scheduler, 1);
  }
}

uint32_t below(block &b, size_t limit) {
  b.random_state ^= b.random_state << 13;
  b.random_state ^= b.random_state >> 7;
  b.random_state ^= b.random_state << 17;
  return static_cast<uint32_t>(b.random_state % limit);
}

[[noreturn]] void fail_for_deadlock(const block &b) {
  for (const fiber &f : b.fibers) {
    if (f.now == phase::at_warp) {
      fail("thread %u of block %u waits for ever in %s(0x%08x)", number_of(f), f.where.block.x,
           f.operation, f.mask);
    }
  }
  fail("%u of %u threads of a block wait for ever in __syncthreads", b.arrived_count, b.live_count);
}

void run_block(block &b, uint32_t number, size_t shared_nbytes) {
  b.live_count = static_cast<uint32_t>(b.fibers.size());
  b.arrived_count = b.nonzero_count = 0;
  memset(gpufi::dynamic_shared_bytes, kPoison, shared_nbytes);
  for (uint32_t i = 0; i < b.live_count; i++) {
    fiber &f = b.fibers[i];
    f.where = {{i}, {number}, i % kWarpLanes};
    f.has_started = false;
    make_ready(b, f);
  }
  while (!b.ready.empty()) {
    uint32_t &chosen = b.ready[below(b, b.ready.size())];
    fiber &f = b.fibers[chosen];
    chosen = b.ready.back();
    b.ready.pop_back();
    resume(b, f);
  }
  if (b.live_count > 0) {
    fail_for_deadlock(b);
  }
}

/* --- the lanes of a mask ---------------------------------------------------------- */

fiber *lanes_of(block &b, const fiber &f) {
  return &b.fibers[number_of(f) - f.where.lane];
}

bool all_have_come(block &b, const fiber &f) {
  const fiber *const lanes = lanes_of(b, f);
  for (uint32_t lane = 0; lane < kWarpLanes; lane++) {
    const fiber &other = lanes[lane];
    if (!(f.mask >> lane & 1)) {
      continue;
    }
    if (other.now == phase::done) {
      fail("%s(0x%08x): lane %u has returned", f.operation, f.mask, lane);
    }
    if (other.now != phase::at_warp || other.mask != f.mask) {
      return false;
    }
    if (strcmp(other.operation, f.operation) != 0) {
      fail("lane %u is in %s, this one in %s", lane, other.operation, f.operation);
    }
  }
  return true;
}

} // namespace

/* --- what kernels call -------------------------------------------------------------- */

const position &self() {
  return the_block().running->where;
}

uint64_t values::of(uint32_t lane) const {
  if (lane >= kWarpLanes || !(mask >> lane & 1)) {
    fail("lane %u is not in the mask 0x%08x", lane, mask);
  }
  return value[lane];
}

const values &exchange(const char *operation, uint32_t mask, uint64_t value) {
  block &b = the_block();
  fiber &f = *b.running;
  if (!(mask >> f.where.lane & 1)) {
    fail("%s(0x%08x) by lane %u, which is not in the mask", operation, mask, f.where.lane);
  }
  f.now = phase::at_warp;
  f.operation = operation;
  f.mask = mask;
  f.value = value;
  if (all_have_come(b, f)) {
    fiber *const lanes = lanes_of(b, f);
    values all = {mask, {}};
    for (uint32_t lane = 0; lane < kWarpLanes; lane++) {
      all.value[lane] = mask >> lane & 1 ? lanes[lane].value : 0;
    }
    for (uint32_t lane = 0; lane < kWarpLanes; lane++) {
      if (mask >> lane & 1) {
        lanes[lane].received = all;
        make_ready(b, lanes[lane]);
      }
    }
  }
  give_way(b);
  return f.received;
}

uint32_t wait_for_block(int value) {
  block &b = the_block();
  b.running->now = phase::at_block;
  b.nonzero_count += value != 0;
  if (++b.arrived_count == b.live_count) {
    release_barrier(b);
  }
  give_way(b);
  return b.result;
}

void run(uint32_t block_count, uint32_t thread_count, size_t shared_nbytes,
         const std::function<void()> &kernel) {
  block &b = the_block();
  if (thread_count == 0 || thread_count > kThreadsMax || thread_count % kWarpLanes != 0 ||
      shared_nbytes > kSharedNbytesMax) {
    fail("%u threads with %zu bytes of shared memory", thread_count, shared_nbytes);
  }
  b.fibers.resize(thread_count);
  b.kernel = &kernel;
  for (uint32_t i = 0; i < block_count; i++) {
    run_block(b, i, shared_nbytes);
  }
}

} // namespace simt
