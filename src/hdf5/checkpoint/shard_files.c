#include "hdf5/checkpoint/shard_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "core/workers.h"
#include "hdf5/checkpoint/seal.h"

/* Threads that remove the shards of a step, with the calling one. */
#define REMOVERS_MAX 16

/* "-", 20 digits, ".", 16 digits, ".", 5 digits, ".h5". */
_Static_assert(GPUFI_CHECKPOINT_PREFIX_NBYTES_MAX + 47 < GPUFI_CHECKPOINT_FILE_NAME_NBYTES,
               "the name of a shard fits");

gpufi_checkpoint_shard_name gpufi_checkpoint_shard_name_of(const char *prefix, int64_t step,
                                                           uint64_t set, size_t index) {
  gpufi_checkpoint_shard_name name;
  snprintf(name.text, sizeof(name.text), "%.*s-%0*" PRId64 ".%016" PRIx64 ".%zu.h5",
           (int)GPUFI_CHECKPOINT_PREFIX_NBYTES_MAX, prefix, GPUFI_CHECKPOINT_STEP_DIGITS_MIN, step,
           set, index);
  return name;
}

/* --- Listing ----------------------------------------------------------------- */

typedef struct found_shard {
  int64_t step;
  uint64_t set;
  size_t index;
} found_shard;

typedef struct found_shards {
  found_shard *all;
  size_t count;
} found_shards;

/* A number and the dot behind it, from *at on, which comes to lie behind that. */
static uint64_t take_number(const char **at, int base, bool *is_good) {
  char *end;
  errno = 0;
  const uint64_t number = strtoull(*at, &end, base);
  *is_good = *is_good && errno == 0 && *end == '.';
  *at = *is_good ? end + 1 : *at;
  return number;
}

/* Whether the name is one that gpufi_checkpoint_shard_name_of gives. */
static bool parse(const gpufi_checkpoint_folder *folder, const char *name, found_shard *found) {
  const size_t prefix_nbytes = strlen(folder->prefix);
  const char *at = name + prefix_nbytes + 1;
  bool is_good = strncmp(name, folder->prefix, prefix_nbytes) == 0 && name[prefix_nbytes] == '-';
  if (!is_good) {
    return false;
  }
  found->step = (int64_t)take_number(&at, 10, &is_good);
  found->set = take_number(&at, 16, &is_good);
  found->index = (size_t)take_number(&at, 10, &is_good);
  const gpufi_checkpoint_shard_name expected =
      gpufi_checkpoint_shard_name_of(folder->prefix, found->step, found->set, found->index);
  return is_good && found->step >= 0 && strcmp(expected.text, name) == 0;
}

static bool append(found_shards *list, const found_shard *found) {
  if ((list->count & (list->count - 1)) == 0) {
    const size_t capacity = list->count ? 2 * list->count : 1;
    found_shard *const grown = realloc(list->all, capacity * sizeof(*grown));
    if (!grown) {
      return false;
    }
    list->all = grown;
  }
  list->all[list->count++] = *found;
  return true;
}

static gpuf_status read_entries(const gpufi_checkpoint_folder *folder, DIR *entries,
                                found_shards *list, gpuf_error *err) {
  const struct dirent *entry;
  found_shard found;
  while ((errno = 0, entry = readdir(entries)) != NULL) {
    if (parse(folder, entry->d_name, &found) && !append(list, &found)) {
      return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to list '%s'", folder->path);
    }
  }
  return errno == 0 ? GPUF_OK : gpufi_fail_system(err, "listing the folder", folder->path, errno);
}

/* The caller frees the list, also after a failure. */
static gpuf_status list_shards(const gpufi_checkpoint_folder *folder, found_shards *list,
                               gpuf_error *err) {
  *list = (found_shards){NULL, 0};
  DIR *const entries = gpufi_checkpoint_folder_entries(folder, err);
  if (!entries) {
    return GPUF_ERR_IO;
  }
  const gpuf_status status = read_entries(folder, entries, list, err);
  closedir(entries);
  return status;
}

/* --- Removing ---------------------------------------------------------------- */

static gpuf_status remove_shard(const gpufi_checkpoint_folder *folder, const found_shard *shard,
                                gpufi_checkpoint_leftovers *leftovers, gpuf_error *err) {
  const gpufi_checkpoint_shard_name name =
      gpufi_checkpoint_shard_name_of(folder->prefix, shard->step, shard->set, shard->index);
  const gpufi_checkpoint_path path = gpufi_checkpoint_path_in(folder, name.text);
  const int code = gpufi_checkpoint_leftovers_unlink(leftovers, path.text);
  return code == 0 ? GPUF_OK : gpufi_fail_system(err, "removing the older shard", path.text, code);
}

/* Only those of the step, and not those of the set `kept`. */
static void select_shards(found_shards *list, int64_t step, const uint64_t *kept) {
  size_t count = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (list->all[i].step == step && (!kept || list->all[i].set != *kept)) {
      list->all[count++] = list->all[i];
    }
  }
  list->count = count;
}

/* What several threads remove: the system takes as long for a file as its cached pages are many. */
typedef struct removing {
  const gpufi_checkpoint_folder *folder;
  found_shards list;
  gpufi_checkpoint_leftovers *leftovers;
} removing;

static gpuf_status remove_one(void *arg, size_t index, gpuf_error *err) {
  const removing *const r = arg;
  return remove_shard(r->folder, &r->list.all[index], r->leftovers, err);
}

gpuf_status gpufi_checkpoint_shards_remove(const gpufi_checkpoint_folder *folder, int64_t step,
                                           const uint64_t *kept,
                                           gpufi_checkpoint_leftovers *leftovers, gpuf_error *err) {
  removing r = {.folder = folder, .leftovers = leftovers};
  const gpuf_status listed = list_shards(folder, &r.list, err);
  select_shards(&r.list, step, kept);
  const gpuf_status removed = gpufi_workers_each(r.list.count, REMOVERS_MAX, remove_one, &r,
                                                 listed == GPUF_OK ? err : NULL);
  free(r.list.all);
  return listed == GPUF_OK ? removed : listed;
}

/* Whether the shard belongs to no checkpoint: its step has none, or one of another set. */
static bool is_orphan(const gpufi_checkpoint_folder *folder, const found_shard *shard) {
  struct stat file;
  gpufi_checkpoint_set set;
  const gpufi_checkpoint_path path = gpufi_checkpoint_path_of(folder, shard->step);
  if (lstat(path.text, &file) != 0) {
    return errno == ENOENT;
  }
  return gpufi_checkpoint_read_set(path.text, &set) && (set.count == 0 || set.number != shard->set);
}

gpuf_status gpufi_checkpoint_shards_sweep(const gpufi_checkpoint_folder *folder, gpuf_error *err) {
  found_shards list;
  const gpuf_status status = list_shards(folder, &list, err);
  for (size_t i = 0; i < list.count; i++) {
    if (is_orphan(folder, &list.all[i])) {
      remove_shard(folder, &list.all[i], NULL, NULL);
    }
  }
  free(list.all);
  return status;
}
