/* What the emulation finds in kernels that are wrong, each of which runs in a process of its own;
 * and that kernels which are right have their results. */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <type_traits>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/relaxed.cuh"
#include "backend/cuda/warp.cuh"
#include "test.h"

namespace {

constexpr uint32_t kThreads = 96;
constexpr uint32_t kLow = 0x0000ffff; /* half of a warp's lanes */

/* --- kernels that are wrong -------------------------------------------------------- */

__global__ void returns_before_a_barrier_of_others(uint32_t *) {
  if (threadIdx.x == 5) {
    __syncwarp();
  }
  __syncthreads();
}

__global__ void has_two_barriers(uint32_t *) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void names_a_lane_that_has_returned(uint32_t *out) {
  if (threadIdx.x % 32 != 7) {
    out[threadIdx.x] = __ballot_sync(gpufi::kAllLanes, 1);
  }
}

__global__ void is_not_in_its_mask(uint32_t *out) {
  out[threadIdx.x] = __shfl_sync(kLow, threadIdx.x, 0);
}

__global__ void reads_a_lane_outside_the_mask(uint32_t *out) {
  if (threadIdx.x % 32 < 16) {
    out[threadIdx.x] = __shfl_xor_sync(kLow, threadIdx.x + 0u, 16);
  }
}

__global__ void calls_two_functions(uint32_t *out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = gpufi::warp_or(uint32_t{1});
  } else {
    out[threadIdx.x] = gpufi::warp_add(uint32_t{1});
  }
}

__global__ void writes_behind_its_shared_memory(uint32_t *) {
  gpufi::dynamic_shared()[blockDim.x].x = 1; /* which has a unit a thread */
}

/* --- kernels that are right, and the same without their barriers ------------------- */

template <bool kWaits> __global__ void reverse(uint32_t *out) {
  __shared__ uint32_t values[kThreads];
  values[threadIdx.x] = threadIdx.x;
  if (kWaits) {
    __syncthreads();
  }
  out[blockIdx.x * kThreads + threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}

template <bool kWaits> __global__ void reverse_in_warps(uint32_t *out) {
  __shared__ uint32_t values[kThreads];
  values[threadIdx.x] = threadIdx.x;
  if (kWaits) {
    __syncwarp();
  }
  out[threadIdx.x] = values[threadIdx.x ^ 31];
}

/* Every thread block adds 1 after the one before it has; the order of the launch is enough. */
__global__ void go_one_after_the_other(uint32_t *out) {
  if (threadIdx.x == 0) {
    while (gpufi::load_relaxed(out) != blockIdx.x) {
    }
    gpufi::store_relaxed(out, blockIdx.x + 1);
  }
}

/* Shared memory of a function that the kernel calls. */
__device__ uint32_t *values_of_thread_block() {
  __shared__ uint32_t values[kThreads];
  return values;
}

/* Keeps numbers in both kinds of shared memory while other thread blocks run. */
__global__ void keep_own_numbers(uint32_t *out) {
  uint32_t *const values = values_of_thread_block();
  const uint32_t number = blockIdx.x * kThreads + threadIdx.x;
  values[threadIdx.x] = gpufi::dynamic_shared()[threadIdx.x].w = number;
  for (int turn = 0; turn < 50; turn++) {
    gpufi::load_relaxed(out);
  }
  out[number] = values[threadIdx.x] + gpufi::dynamic_shared()[threadIdx.x].w;
}

/* Every function that lanes call together. */
__global__ void sum_lanes(uint32_t *out) {
  const uint32_t lane = threadIdx.x % 32;
  const int mine = static_cast<int>(lane);
  uint32_t sum = 0;
  sum += gpufi::warp_scan(lane, mine) == lane * (lane + 1) / 2;
  sum += gpufi::warp_max(lane) == 31;
  sum += gpufi::warp_add(lane) == 496;
  sum += gpufi::warp_or(lane) == 31;
  sum += gpufi::warp_add(uint64_t{lane} << 40) == uint64_t{496} << 40;
  sum += __ballot_sync(gpufi::kAllLanes, lane % 3 == 0) == 0x49249249;
  sum += __match_any_sync(gpufi::kAllLanes, lane % 4) == 0x11111111u << lane % 4;
  sum += __shfl_sync(gpufi::kAllLanes, lane, mine + 1, 8) == (lane & 24) + (lane + 1) % 8;
  sum += __shfl_up_sync(gpufi::kAllLanes, lane, 3, 8) == (lane % 8 < 3 ? lane : lane - 3);
  sum += __shfl_down_sync(gpufi::kAllLanes, lane, 3, 8) == (lane % 8 > 4 ? lane : lane + 3);
  sum += __shfl_xor_sync(gpufi::kAllLanes, 0.5 * lane, 5) == 0.5 * (lane ^ 5);
  sum += __any_sync(gpufi::kAllLanes, lane == 9) && !__all_sync(gpufi::kAllLanes, lane != 9);
  out[threadIdx.x] = sum;
}

__global__ void number_threads(uint32_t *out) {
  const uint32_t within = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + within]++;
}

/* --- the tests --------------------------------------------------------------------- */

constexpr uint32_t kBlocks = 40;

struct memory {
  uint32_t *values = nullptr;
  memory() {
    void *d_ptr = nullptr;
    CHECK(cudaMalloc(&d_ptr, kBlocks * kThreads * sizeof(uint32_t)) == cudaSuccess);
    values = static_cast<uint32_t *>(d_ptr);
    memset(d_ptr, 0, kBlocks * kThreads * sizeof(uint32_t));
  }
  ~memory() {
    cudaFree(values);
  }
  memory(const memory &) = delete;
  memory &operator=(const memory &) = delete;
};

cudaError_t run(void (*kernel)(uint32_t *), uint32_t *out, uint32_t thread_blocks = 1) {
  return gpufi::launch_kernel(kernel, thread_blocks, kThreads, kThreads * sizeof(uint4), nullptr,
                              out);
}

/* Whether the kernel ends the process with a message that has both texts. */
bool fails_with(void (*kernel)(uint32_t *), const char *text, const char *name) {
  static char message[4096];
  int ends[2];
  size_t nbytes = 0;
  if (pipe(ends) != 0) {
    return false;
  }
  const pid_t child = fork();
  if (child == 0) {
    memory m;
    signal(SIGABRT, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    run(kernel, m.values);
    _exit(0);
  }
  close(ends[1]);
  for (ssize_t more = 1; more > 0 && nbytes < sizeof(message) - 1; nbytes += more) {
    more = TEMP_FAILURE_RETRY(read(ends[0], message + nbytes, sizeof(message) - 1 - nbytes));
  }
  message[nbytes] = '\0';
  close(ends[0]);
  int status;
  const bool ended = TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) == child;
  const bool right = ended && WIFSIGNALED(status) && strstr(message, text) && strstr(message, name);
  if (!right) {
    printf("# status %d: %s\n", ended ? status : -1, message);
  }
  return right;
}

#define CHECK_FAILS_WITH(kernel, text) CHECK(fails_with(kernel, text, #kernel))

void a_deadlock_names_who_waits_and_where() {
  CHECK_FAILS_WITH(returns_before_a_barrier_of_others, "thread 5 waits in __syncwarp(0xffffffff)");
  CHECK_FAILS_WITH(returns_before_a_barrier_of_others, "deadlock: 96 threads");
}

void threads_at_different_barriers_are_found() {
  CHECK_FAILS_WITH(has_two_barriers, "other threads of the thread block wait in __syncthreads at");
}

void a_lane_that_has_returned_is_not_waited_for() {
  CHECK_FAILS_WITH(names_a_lane_that_has_returned, "lane 7");
}

void a_mask_without_the_caller_is_found() {
  CHECK_FAILS_WITH(is_not_in_its_mask, "is not in its own mask 0x0000ffff");
}

void a_value_from_outside_the_mask_is_found() {
  CHECK_FAILS_WITH(reads_a_lane_outside_the_mask, "which is not in the mask 0x0000ffff");
}

void lanes_in_different_functions_are_found() {
  CHECK_FAILS_WITH(calls_two_functions, "with the same mask 0xffffffff");
}

void a_write_behind_the_shared_memory_is_found() {
  CHECK_FAILS_WITH(writes_behind_its_shared_memory, "of the dynamic shared memory was written");
}

bool is_reversed(const memory &m, uint32_t thread_blocks, uint32_t mask) {
  bool right = true;
  for (uint32_t i = 0; i < thread_blocks * kThreads; i++) {
    const uint32_t within = i % kThreads;
    right = right && m.values[i] == (mask ? within ^ mask : kThreads - 1 - within);
  }
  return right;
}

void a_missing_barrier_shows() {
  memory m;
  CHECK(run(reverse<true>, m.values, kBlocks) == cudaSuccess);
  CHECK(is_reversed(m, kBlocks, 0));
  CHECK(run(reverse<false>, m.values, kBlocks) == cudaSuccess);
  CHECK(!is_reversed(m, 1, 0));
}

void a_missing_wait_within_a_warp_shows() {
  memory m;
  CHECK(run(reverse_in_warps<true>, m.values) == cudaSuccess);
  CHECK(is_reversed(m, 1, 31));
  CHECK(run(reverse_in_warps<false>, m.values) == cudaSuccess);
  CHECK(!is_reversed(m, 1, 31));
}

void thread_blocks_wait_for_those_before_them() {
  memory m;
  for (int round = 0; round < 20; round++) {
    m.values[0] = 0;
    CHECK(run(go_one_after_the_other, m.values, kBlocks) == cudaSuccess);
    CHECK(m.values[0] == kBlocks);
  }
}

void thread_blocks_do_not_share_shared_memory() {
  memory m;
  for (int round = 0; round < 20; round++) {
    CHECK(run(keep_own_numbers, m.values, kBlocks) == cudaSuccess);
    for (uint32_t i = 0; i < kBlocks * kThreads; i++) {
      CHECK(m.values[i] == 2 * i);
    }
  }
}

void lanes_get_each_others_values() {
  memory m;
  CHECK(run(sum_lanes, m.values) == cudaSuccess);
  for (uint32_t i = 0; i < kThreads; i++) {
    CHECK(m.values[i] == 12);
  }
}

void every_thread_of_a_grid_runs_once() {
  memory m;
  CHECK(gpufi::launch_kernel(number_threads, dim3(2, 3, 4), dim3(5, 2, 3), 0, nullptr, m.values) ==
        cudaSuccess);
  for (uint32_t i = 0; i < kBlocks * kThreads; i++) {
    CHECK(m.values[i] == (i < 24 * 30 ? 1 : 0));
  }
}

void a_launch_that_no_gpu_takes_is_refused() {
  memory m;
  CHECK(run(number_threads, m.values, 0) == cudaErrorInvalidConfiguration);
  CHECK(gpufi::launch_kernel(number_threads, 1, 1025, 0, nullptr, m.values) ==
        cudaErrorInvalidConfiguration);
  CHECK(gpufi::launch_kernel(number_threads, dim3(1, 65536), 32, 0, nullptr, m.values) ==
        cudaErrorInvalidConfiguration);
  CHECK(gpufi::launch_kernel(number_threads, 1, 32, 49153, nullptr, m.values) ==
        cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(number_threads, cudaFuncAttributeMaxDynamicSharedMemorySize, 49153) ==
        cudaSuccess);
  CHECK(gpufi::launch_kernel(number_threads, 1, 32, 49153, nullptr, m.values) == cudaSuccess);
  CHECK(m.values[0] == 1);
}

} // namespace

int main() {
  TEST(a_deadlock_names_who_waits_and_where);
  TEST(threads_at_different_barriers_are_found);
  TEST(a_lane_that_has_returned_is_not_waited_for);
  TEST(a_mask_without_the_caller_is_found);
  TEST(a_value_from_outside_the_mask_is_found);
  TEST(lanes_in_different_functions_are_found);
  TEST(a_write_behind_the_shared_memory_is_found);
  TEST(a_missing_barrier_shows);
  TEST(a_missing_wait_within_a_warp_shows);
  TEST(thread_blocks_wait_for_those_before_them);
  TEST(thread_blocks_do_not_share_shared_memory);
  TEST(lanes_get_each_others_values);
  TEST(every_thread_of_a_grid_runs_once);
  TEST(a_launch_that_no_gpu_takes_is_refused);
  return test_finish();
}
