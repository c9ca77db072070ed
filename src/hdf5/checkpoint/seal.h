/* The seal of a finished checkpoint: a checksum of all bytes of the file that are not the elements
 * of tensors, which have checksums of their own in the manifest. It stands behind the bytes of
 * HDF5, whose programs do not look there. HDF5's own metadata has no checksums in files that every
 * release reads, and libhdf5 may crash where it is damaged: the seal is checked before HDF5 sees
 * the file.
 *
 *   of a master only, 40 bytes:               magic "gpufetch shards\0"
 *                                             set u64, the number in the names of its shards
 *                                             count u64, of its shards
 *                                             checksum u64 of its shards' marks: see
 *                                             gpufi_checkpoint_add_mark
 *   the ranges that it leaves out, in order:  begin u64, end u64  each
 *   the last 64 bytes:                        magic "gpufetch checkpoint seal"
 *                                             version u64, 1
 *                                             nbytes u64, of the whole file
 *                                             range count u64
 *                                             checksum u64 of the bytes before the ranges, without
 *                                             those that the ranges leave out
 *                                             checksum u64 of the ranges and of the 56 bytes before
 *
 * Numbers are little-endian; the checksums are gpufi_h5_hash's, those of 1 MiB at a time in a
 * chain. Thread-safety: re-entrant. */
#ifndef GPUFI_HDF5_CHECKPOINT_SEAL_H
#define GPUFI_HDF5_CHECKPOINT_SEAL_H

#include <gpufetch/gpufetch.h>

#include "hdf5/driver/extents.h"

/* The shards that a master refers to, as its file says beside its manifest, so that it can be known
 * without HDF5. */
typedef struct gpufi_checkpoint_set {
  uint64_t number;
  uint64_t count; /* 0: the file is none of a master */
  uint64_t marks_sum;
} gpufi_checkpoint_set;

/* What makes a sealed file known again. */
typedef struct gpufi_checkpoint_seal_mark {
  uint64_t nbytes; /* of the file */
  uint64_t sum;    /* the last checksum of the seal, on which all of the others depend */
} gpufi_checkpoint_seal_mark;

/* The checksum of a mark and of those before it, whose checksum is `sum`; that of none is 0. */
uint64_t gpufi_checkpoint_add_mark(uint64_t sum, const gpufi_checkpoint_seal_mark *mark);

/* Append a master's set to its file, before it is sealed. */
gpuf_status gpufi_checkpoint_note_set(int fd, const char *path, const gpufi_checkpoint_set *set,
                                      gpuf_error *err);
/* The set that the file at `path` notes; what it says has not been compared with its seal. False
 * where the file has no seal, or that is not known. */
bool gpufi_checkpoint_read_set(const char *path, gpufi_checkpoint_set *set);
/* The mark of the file, open as `fd`, which ends with a seal that has been written or checked. */
gpuf_status gpufi_checkpoint_read_mark(int fd, const char *path, gpufi_checkpoint_seal_mark *mark,
                                       gpuf_error *err);

/* Append the seal to the file at `path`, open as `fd` for reading and writing. `elements` is what
 * it leaves out; what is not in the file does not count. */
gpuf_status gpufi_checkpoint_seal(int fd, const char *path, const gpufi_h5_extents *elements,
                                  gpuf_error *err);

/* Whether the file, open as `fd` and `nbytes` bytes long, is as it was sealed. GPUF_ERR_CORRUPT
 * where it is not, or has no seal; GPUF_ERR_UNSUPPORTED for a seal of a later version; GPUF_ERR_IO
 * and GPUF_ERR_NO_MEMORY where that is not known. */
gpuf_status gpufi_checkpoint_check_seal(int fd, const char *path, int64_t nbytes, gpuf_error *err);

/* The same of the file at `path`, whose mark is filled in. GPUF_ERR_CORRUPT also for what is no
 * regular file. */
gpuf_status gpufi_checkpoint_check_file(const char *path, gpufi_checkpoint_seal_mark *mark,
                                        gpuf_error *err);

/* The same of a shard; the message says that it is one, and what to do where it is missing, which
 * is GPUF_ERR_CORRUPT, with ENOENT. */
gpuf_status gpufi_checkpoint_check_shard(const char *path, gpufi_checkpoint_seal_mark *mark,
                                         gpuf_error *err);
/* The same of the file at `path` and of the shards that it has by its name. */
gpuf_status gpufi_checkpoint_check_files(const char *path, gpuf_error *err);

/* Whether the shards that the file at `path` has by its name are those that were written with it,
 * by their marks alone: one that was changed in place passes. Those that do not open are left to
 * who reads them. */
gpuf_status gpufi_checkpoint_check_marks(const char *path, gpuf_error *err);

/* Whether the file at `path` ends with a seal, right or not: it is a checkpoint of this library's.
 * False where that is not known. */
bool gpufi_checkpoint_has_seal(const char *path);

#endif
