/* What a GPU checks of a launch. */
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

extern "C" {
#include "devices.h"
}

namespace {

constexpr size_t kUsualSharedNbytes = size_t{48} << 10; /* without cudaFuncSetAttribute */
constexpr uint32_t kGridMax = 65535;                    /* along y and z */

std::mutex lock;
std::map<const void *, size_t> allowed_nbytes; /* guarded by the lock; by kernel */

size_t allowed(const void *kernel) {
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = allowed_nbytes.find(kernel);
  return found == allowed_nbytes.end() ? kUsualSharedNbytes : found->second;
}

bool is_any_zero(const dim3 &d) {
  return d.x == 0 || d.y == 0 || d.z == 0;
}

} // namespace

extern "C" cudaError_t emulation_allow_shared(const void *kernel, int nbytes) {
  if (nbytes < 0 || nbytes > EMULATION_SHARED_NBYTES(emulation_device())) {
    return cudaErrorInvalidValue;
  }
  const std::lock_guard<std::mutex> guard(lock);
  size_t &allowed = allowed_nbytes[kernel];
  allowed = std::max({allowed, static_cast<size_t>(nbytes), kUsualSharedNbytes});
  return cudaSuccess;
}

extern "C" cudaError_t emulation_check_launch(const cudaLaunchConfig_t *config,
                                              const void *kernel) {
  const dim3 grid = config->gridDim, threads = config->blockDim;
  const uint64_t thread_count = uint64_t{threads.x} * threads.y * threads.z;
  if (is_any_zero(grid) || is_any_zero(threads) || grid.x > INT32_MAX || grid.y > kGridMax ||
      grid.z > kGridMax || thread_count > emulation::kThreadsMax) {
    return cudaErrorInvalidConfiguration;
  }
  const size_t most = EMULATION_SHARED_NBYTES(emulation_device());
  return config->dynamicSmemBytes > std::min(allowed(kernel), most) ? cudaErrorInvalidValue
                                                                    : cudaSuccess;
}
