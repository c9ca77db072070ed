/* Stands in for the CUDA toolkit's header: what the backend uses of the driver's API. driver.c
 * implements it; the backend finds the calls by cudaGetDriverEntryPointByVersion. */
#ifndef GPUFI_TEST_CUDA_EMULATION_CUDA_H
#define GPUFI_TEST_CUDA_EMULATION_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef enum cudaError_enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
} CUresult;

typedef uint64_t CUdeviceptr;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;

typedef enum CUpointer_attribute {
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
  CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
} CUpointer_attribute;

#define CU_MEMORYTYPE_HOST 1
#define CU_MEMORYTYPE_DEVICE 2

#endif
