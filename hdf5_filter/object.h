/* The program or library that an address of code lies in, and its symbols. There is a source file
 * for each system: object_elf.c (Linux), object_macos.c, object_windows.c.
 *
 * Thread-safety: every function is re-entrant. */
#ifndef GPUFI_HDF5_FILTER_OBJECT_H
#define GPUFI_HDF5_FILTER_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gpufi_object {
  void *handle;         /* the loader's; gpufi_object_close gives it back */
  uintptr_t begin, end; /* of the object in memory, where the loader tells both; else only begin */
} gpufi_object;

/* False if the address lies in none. */
bool gpufi_object_open(gpufi_object *object, const void *address);

/* The address of a symbol that the object itself defines and exports, not one of the libraries that
 * it depends on; else NULL. */
void *gpufi_object_symbol(const gpufi_object *object, const char *name);

void gpufi_object_close(gpufi_object *object);

#endif
