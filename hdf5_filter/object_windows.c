/* Of Windows. */
#include "object.h"

#include <stddef.h>
#include <string.h>
#include <windows.h>

bool gpufi_object_open(gpufi_object *object, const void *address) {
  HMODULE module;
  *object = (gpufi_object){0};
  if (!GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, (LPCSTR)address, &module)) {
    return false;
  }
  object->handle = module;
  object->begin = (uintptr_t)module;
  return true;
}

void *gpufi_object_symbol(const gpufi_object *object, const char *name) {
  const FARPROC found = GetProcAddress((HMODULE)object->handle, name);
  void *address;
  memcpy(&address, &found, sizeof(address));
  return address;
}

void gpufi_object_close(gpufi_object *object) {
  FreeLibrary((HMODULE)object->handle);
}
