/* Gray-Scott: the CUDA kernel. */
#include "gray_scott_cell.h"

#include <cuda_runtime.h>

static __global__ void step_kernel(const gray_scott_step s) {
  int64_t nx = s.shape[0], ny = s.shape[1], nz = s.shape[2];
  int64_t row_count = nx * ny;
  int64_t z = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (z >= nz) {
    return;
  }
  /* A stride over the rows: the grid's second dimension is limited, their number is not. */
  for (int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; row < row_count;
       row += (int64_t)gridDim.y * blockDim.y) {
    int64_t x = row / ny, y = row % ny;
    gray_scott_cell(
        &s.model, s.u, s.v, s.u_next, s.v_next, row * nz + z,
        (gray_scott_before(x, nx) * ny + y) * nz + z, (gray_scott_after(x, nx) * ny + y) * nz + z,
        (x * ny + gray_scott_before(y, ny)) * nz + z, (x * ny + gray_scott_after(y, ny)) * nz + z,
        row * nz + gray_scott_before(z, nz), row * nz + gray_scott_after(z, nz));
  }
}

/* Enqueue one step on `stream`, a cudaStream_t. Returns NULL, or CUDA's words for the failure. */
extern "C" const char *gray_scott_cuda_launch(const gray_scott_step *step, int device_index,
                                              uintptr_t stream) {
  cudaError_t status = cudaSetDevice(device_index);
  if (status == cudaSuccess) {
    const int64_t row_count = step->shape[0] * step->shape[1];
    const int64_t block_rows = (row_count + 3) / 4;
    dim3 block(64, 4);
    dim3 grid((unsigned)((step->shape[2] + 63) / 64),
              (unsigned)(block_rows < 65535 ? block_rows : 65535));
    step_kernel<<<grid, block, 0, (cudaStream_t)stream>>>(*step);
    status = cudaGetLastError();
  }
  return status == cudaSuccess ? NULL : cudaGetErrorString(status);
}
