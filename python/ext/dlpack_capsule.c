/* The destructor of capsules that were imported and of those that were exported. */
#include "dlpack_capsule.h"

#include "dlpack_abi.h"
#include "errors.h"

void gpufi_py_dlpack_run_deleter(PyObject *capsule, const char *legacy_name,
                                 const char *versioned_name) {
  const gpufi_py_exception raised = gpufi_py_exception_take();
  if (PyCapsule_IsValid(capsule, legacy_name)) {
    gpufi_dl_managed *managed = PyCapsule_GetPointer(capsule, legacy_name);
    if (managed->deleter) {
      managed->deleter(managed);
    }
  } else if (PyCapsule_IsValid(capsule, versioned_name)) {
    gpufi_dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, versioned_name);
    if (managed->deleter) {
      managed->deleter(managed);
    }
  }
  gpufi_py_exception_restore(raised);
}
