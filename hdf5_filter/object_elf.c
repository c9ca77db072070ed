/* Of Linux, with glibc or musl. */
#include "object.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>

/* An object's segments say what lies in it: dladdr would also look for the nearest of all of its
 * symbols, which takes a millisecond for a dataset in a large program. */
typedef struct search {
  uintptr_t address;
  const char *name; /* the loader's; empty for the program itself */
  gpufi_object *object;
} search;

static int visit_object(struct dl_phdr_info *info, size_t nbytes, void *arg) {
  search *const s = arg;
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
  (void)nbytes;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *const segment = &info->dlpi_phdr[i];
    if (segment->p_type == PT_LOAD) {
      const uintptr_t at = info->dlpi_addr + segment->p_vaddr;
      begin = at < begin ? at : begin;
      end = at + segment->p_memsz > end ? at + segment->p_memsz : end;
    }
  }
  if (s->address < begin || s->address >= end) {
    return 0;
  }
  s->name = info->dlpi_name;
  s->object->begin = begin;
  s->object->end = end;
  return 1;
}

bool gpufi_object_open(gpufi_object *object, const void *address) {
  search s = {.address = (uintptr_t)address, .object = object};
  *object = (gpufi_object){0};
  if (dl_iterate_phdr(visit_object, &s) == 0) {
    return false;
  }
  object->handle = *s.name ? dlopen(s.name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (object->handle == NULL) { /* the program itself is not found by its file name */
    object->handle = dlopen(NULL, RTLD_LAZY);
  }
  return object->handle != NULL;
}

void *gpufi_object_symbol(const gpufi_object *object, const char *name) {
  void *const address = dlsym(object->handle, name); /* also of what the object depends on */
  return (uintptr_t)address >= object->begin && (uintptr_t)address < object->end ? address : NULL;
}

void gpufi_object_close(gpufi_object *object) {
  dlclose(object->handle);
}
