/* Launches: the threads of the system that run thread blocks in turns, and shared memory. */
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "include/cuda_runtime_api.h"
#include "symbols.h"
#include "thread_block.h"

namespace gpufi {

/* As launch.cuh declares it. */
extern thread_local uint4 dynamic_shared_bytes[];
thread_local uint4 dynamic_shared_bytes[emulation::kSharedNbytesMax / sizeof(uint4)];

} // namespace gpufi

namespace emulation {

namespace {

constexpr int kPoison = 0xc5;
constexpr size_t kGuardNbytes = 64; /* behind the dynamic shared memory */
constexpr uint64_t kSeed = 0x9e3779b97f4a7c15u;

/* --- shared memory ----------------------------------------------------------------- */

/* The thread-local variables of the calling thread that belong to the program, among which are the
 * variables of kernels in shared memory. */
unsigned char *find_variables() {
  unsigned char *begin = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *to) {
        *static_cast<void **>(to) = info->dlpi_tls_data;
        return 1; /* the program itself comes first */
      },
      &begin);
  return begin;
}

void poison(const grid_launch &launch, unsigned char *variables) {
  for (const variable &v : shared_variables(launch.address)) {
    memset(variables + v.offset, kPoison, v.nbytes);
  }
  memset(gpufi::dynamic_shared_bytes, kPoison,
         std::min(launch.shared_nbytes + kGuardNbytes, kSharedNbytesMax));
}

void check_guard(const grid_launch &launch, uint3 block) {
  const unsigned char *const dynamic =
      reinterpret_cast<const unsigned char *>(gpufi::dynamic_shared_bytes);
  for (size_t i = launch.shared_nbytes;
       i < std::min(launch.shared_nbytes + kGuardNbytes, kSharedNbytesMax); i++) {
    if (dynamic[i] != kPoison) {
      fprintf(stderr,
              "CUDA emulation: byte %zu of the dynamic shared memory was written, which has %zu\n"
              "  kernel %s\n  thread block (%u, %u, %u), seed 0x%" PRIx64 "\n",
              i, launch.shared_nbytes, function_name(launch.address), block.x, block.y, block.z,
              launch.seed);
      abort();
    }
  }
}

/* --- residents --------------------------------------------------------------------- */

/* Wait for the resident's turn. */
void await_turn(resident *r) {
  std::unique_lock<std::mutex> guard(r->of->lock);
  r->turn.wait(guard, [r] { return r->of->running == r; });
}

void make_running(resident *next) {
  const std::lock_guard<std::mutex> guard(next->of->lock);
  next->of->running = next;
  next->turn.notify_one();
}

void leave(resident *r) {
  std::vector<resident *> &all = r->of->all;
  all.erase(std::find(all.begin(), all.end(), r));
  if (!all.empty()) {
    make_running(all[r->of->below(static_cast<uint32_t>(all.size()))]);
  }
}

uint3 index_of(const dim3 &grid, uint64_t number) {
  const uint64_t row = number / grid.x;
  return {static_cast<uint32_t>(number % grid.x), static_cast<uint32_t>(row % grid.y),
          static_cast<uint32_t>(row / grid.y)};
}

void *resident_main(void *argument) {
  resident *const r = static_cast<resident *>(argument);
  grid_launch *const of = r->of;
  const uint64_t block_count = uint64_t{of->grid.x} * of->grid.y * of->grid.z;
  unsigned char *const variables = find_variables();
  await_turn(r);
  context_of_thread(&r->own);
  for (uint32_t i = 0; i < r->thread_count; i++) {
    r->threads[i] = reinterpret_cast<fiber *>(stack_take() + kStackNbytes - kOwnNbytes);
  }
  while (of->next_block < block_count) {
    const uint3 block = index_of(of->grid, of->next_block++);
    poison(*of, variables);
    run_thread_block(r, block);
    check_guard(*of, block);
  }
  for (uint32_t i = 0; i < r->thread_count; i++) {
    stack_put(reinterpret_cast<unsigned char *>(r->threads[i]) - (kStackNbytes - kOwnNbytes));
  }
  leave(r);
  return nullptr;
}

/* --- seeds ------------------------------------------------------------------------- */

uint64_t first_seed() {
  const char *const text = getenv("GPUFETCH_TEST_EMULATION_SEED");
  return text ? strtoull(text, nullptr, 0) : 1;
}

/* A seed for each launch of the program. */
uint64_t next_seed() {
  static std::atomic<uint64_t> next(first_seed());
  return next++;
}

} // namespace

void give_turn(resident *r) {
  const std::vector<resident *> &all = r->of->all;
  resident *const next = all[r->of->below(static_cast<uint32_t>(all.size()))];
  if (next != r) {
    make_running(next);
    await_turn(r);
  }
}

void launch(dim3 grid, dim3 threads, size_t shared_nbytes, const void *address,
            const std::function<void()> &kernel) {
  grid_launch of = {};
  resident residents[kResidentMax];
  pthread_t ids[kResidentMax];
  of.grid = grid;
  of.threads = threads;
  of.shared_nbytes = shared_nbytes;
  of.address = address;
  of.kernel = &kernel;
  of.seed = next_seed();
  of.random_state = (of.seed + 1) * kSeed;
  const uint64_t block_count = uint64_t{grid.x} * grid.y * grid.z;
  const uint32_t wanted = 1 + of.below(kResidentMax);
  const uint32_t count = static_cast<uint32_t>(std::min<uint64_t>(wanted, block_count));
  for (uint32_t i = 0; i < count; i++) {
    residents[i].of = &of;
    residents[i].thread_count = threads.x * threads.y * threads.z;
    of.all.push_back(&residents[i]);
  }
  for (uint32_t i = 0; i < count; i++) {
    if (pthread_create(&ids[i], nullptr, resident_main, &residents[i]) != 0) {
      perror("CUDA emulation: no thread for a thread block");
      abort();
    }
  }
  make_running(&residents[0]);
  for (uint32_t i = 0; i < count; i++) {
    pthread_join(ids[i], nullptr);
  }
}

} // namespace emulation
