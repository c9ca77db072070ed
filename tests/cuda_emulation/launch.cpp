/* Launches: whose turn it is among the thread blocks that are under way, and shared memory. */
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>

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

/* A kernel's shared memory lies in thread-local variables, which thread blocks that are under way
 * at once use in turns. */
struct range {
  unsigned char *begin;
  size_t nbytes;
};

/* The thread-local variables of the calling thread that belong to the program. */
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

std::vector<range> find_shared(const grid_launch &launch) {
  const size_t dynamic_nbytes = std::min(launch.shared_nbytes + kGuardNbytes, kSharedNbytesMax);
  unsigned char *const variables = find_variables();
  std::vector<range> found;
  for (const variable &v : shared_variables(launch.address)) {
    found.push_back({variables + v.offset, v.nbytes});
  }
  found.push_back({reinterpret_cast<unsigned char *>(gpufi::dynamic_shared_bytes), dynamic_nbytes});
  return found;
}

void poison(const std::vector<range> &shared) {
  for (const range &r : shared) {
    memset(r.begin, kPoison, r.nbytes);
  }
}

void save(const std::vector<range> &shared, std::vector<unsigned char> *to) {
  to->clear();
  for (const range &r : shared) {
    to->insert(to->end(), r.begin, r.begin + r.nbytes);
  }
}

void restore(const std::vector<range> &shared, const std::vector<unsigned char> &from) {
  const unsigned char *at = from.data();
  for (const range &r : shared) {
    memcpy(r.begin, at, r.nbytes);
    at += r.nbytes;
  }
}

void check_guard(const grid_launch &launch, const std::vector<range> &shared, uint3 block) {
  const range &dynamic = shared.back();
  for (size_t i = launch.shared_nbytes; i < dynamic.nbytes; i++) {
    if (dynamic.begin[i] != kPoison) {
      fprintf(stderr,
              "CUDA emulation: byte %zu of the dynamic shared memory was written, which has %zu\n"
              "  kernel %s\n  thread block (%u, %u, %u), seed 0x%" PRIx64 "\n",
              i, launch.shared_nbytes, function_name(launch.address), block.x, block.y, block.z,
              launch.seed);
      abort();
    }
  }
}

/* --- turns ------------------------------------------------------------------------- */

uint3 index_of(const dim3 &grid, uint64_t number) {
  const uint64_t row = number / grid.x;
  return {static_cast<uint32_t>(number % grid.x), static_cast<uint32_t>(row % grid.y),
          static_cast<uint32_t>(row / grid.y)};
}

void init(resident *r, grid_launch *of) {
  r->of = of;
  r->thread_count = of->threads.x * of->threads.y * of->threads.z;
  r->threads.resize(r->thread_count);
  r->arena = arena_take();
  *static_cast<fiber **>(r->arena) = r->threads.data();
}

/* The thread blocks of a launch. */
struct schedule {
  grid_launch *of;
  std::vector<range> shared;
  std::vector<resident *> all; /* that have a thread block */
  resident *loaded;            /* whose shared memory is in place; NULL if nobody's is */
  uint64_t next_block, block_count;

  /* Give the next thread block to a resident. */
  void begin(resident *r) {
    load(nullptr);
    poison(shared);
    begin_thread_block(r, index_of(of->grid, next_block++));
    loaded = r;
  }

  void load(resident *r) {
    if (loaded && loaded != r) {
      save(shared, &loaded->shared);
    }
    if (r && loaded != r) {
      restore(shared, r->shared);
    }
    loaded = r;
  }

  void run() {
    while (!all.empty()) {
      const uint32_t i = of->below(static_cast<uint32_t>(all.size()));
      resident *const r = all[i];
      load(r);
      resume_thread_block(r);
      if (r->live_count > 0) {
        continue;
      }
      of->switch_count = 0;
      check_guard(*of, shared, r->block);
      loaded = nullptr;
      if (next_block < block_count) {
        begin(r);
      } else {
        all.erase(all.begin() + i);
      }
    }
  }
};

/* A seed for each launch of the program. */
uint64_t next_seed() {
  static const char *const text = getenv("GPUFETCH_TEST_EMULATION_SEED");
  static std::atomic<uint64_t> next(text ? strtoull(text, nullptr, 0) : 1);
  return next++;
}

} // namespace

void launch(dim3 grid, dim3 threads, size_t shared_nbytes, const void *address,
            const std::function<void()> &kernel) {
  grid_launch of = {};
  of.grid = grid;
  of.threads = threads;
  of.shared_nbytes = shared_nbytes;
  of.address = address;
  of.kernel = &kernel;
  of.seed = next_seed();
  of.random_state = (of.seed + 1) * kSeed;
  const uint64_t block_count = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t wanted = 1 + of.below(kResidentMax);
  std::vector<resident> residents(std::min(wanted, block_count));
  schedule s = {&of, find_shared(of), {}, nullptr, 0, block_count};
  for (resident &r : residents) {
    init(&r, &of);
    s.all.push_back(&r);
    s.begin(&r);
  }
  s.run();
  for (const resident &r : residents) {
    arena_put(r.arena);
  }
}

} // namespace emulation
