/* One .cu file as C++: KERNELS names it. */
#include <cuda_runtime_api.h>

#include KERNELS
