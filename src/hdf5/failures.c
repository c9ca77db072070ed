#include "hdf5/failures.h"

#include <pthread.h>
#include <string.h>

#include "base/fork.h"

/* The oldest entry makes way for the newest one. An entry outlives its file, whose number does not
 * come back. */
#define FILES_MAX 1024

typedef struct failed_file {
  gpufi_h5_file file;
  gpufi_h5_failure failure;
} failed_file;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static failed_file failed[FILES_MAX];
static size_t failed_count; /* so far */

gpufi_h5_file gpufi_h5_file_of(const gpufi_h5_api *api, hid_t id) {
  gpufi_h5_file found = {NULL, 0};
  _Alignas(16) unsigned char info[GPUFI_H5_INFO_NBYTES];
  bool is_known = false;
  if (api->Fget_fileno) {
    const hid_t file = api->Iget_file_id(id);
    if (file >= 0) {
      is_known = api->Fget_fileno(file, &found.number) >= 0;
      api->Idec_ref(file);
    }
  } else if (api->Oget_info2 || api->Oget_info1) {
    is_known = (api->Oget_info2 ? api->Oget_info2(id, info, GPUFI_H5O_INFO_BASIC)
                                : api->Oget_info1(id, info)) >= 0;
    memcpy(&found.number, info, sizeof(found.number));
  }
  found.api = is_known ? api : NULL;
  return found;
}

GPUFI_HOLD_AT_FORK(GPUFI_FORK_LEAF, &mutex);

static failed_file *find(const gpufi_h5_file *file) {
  const size_t count = failed_count < FILES_MAX ? failed_count : FILES_MAX;
  for (size_t i = 0; i < count; i++) {
    if (failed[i].file.api == file->api && failed[i].file.number == file->number) {
      return &failed[i];
    }
  }
  return NULL;
}

void gpufi_h5_failure_note(const gpufi_h5_file *file, gpufi_h5_failure failure) {
  failed_file *found;
  if (!file->api) {
    return;
  }
  pthread_mutex_lock(&mutex);
  found = find(file);
  if (found) {
    found->failure.has_lost |= failure.has_lost;
  } else {
    failed[failed_count++ % FILES_MAX] = (failed_file){*file, failure};
  }
  pthread_mutex_unlock(&mutex);
}

gpufi_h5_failure gpufi_h5_failure_find(const gpufi_h5_file *file) {
  gpufi_h5_failure failure = {0};
  const failed_file *found;
  pthread_mutex_lock(&mutex);
  found = find(file);
  if (found) {
    failure = found->failure;
  }
  pthread_mutex_unlock(&mutex);
  return failure;
}
