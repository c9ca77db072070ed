/* Of macOS. */
#include "object.h"

#include <dlfcn.h>
#include <stddef.h>

bool gpufi_object_open(gpufi_object *object, const void *address) {
  Dl_info info;
  *object = (gpufi_object){0};
  if (dladdr(address, &info) == 0) {
    return false;
  }
  object->begin = (uintptr_t)info.dli_fbase;
  object->handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (object->handle == NULL) { /* the program itself */
    object->handle = dlopen(NULL, RTLD_LAZY);
  }
  return object->handle != NULL;
}

void *gpufi_object_symbol(const gpufi_object *object, const char *name) {
  Dl_info info;
  void *const address = dlsym(object->handle, name); /* also of what the object depends on */
  const bool is_own =
      address != NULL && dladdr(address, &info) != 0 && (uintptr_t)info.dli_fbase == object->begin;
  return is_own ? address : NULL;
}

void gpufi_object_close(gpufi_object *object) {
  dlclose(object->handle);
}
