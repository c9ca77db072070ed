/* What kernels use of CUDA's header of this name. */
#ifndef GPUFI_TEST_CUDA_EMULATION_MATH_CONSTANTS_H
#define GPUFI_TEST_CUDA_EMULATION_MATH_CONSTANTS_H

#define CUDART_INF_F __builtin_inff()
#define CUDART_INF __builtin_inf()

#endif
