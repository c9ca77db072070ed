#include "hdf5/driver/callbacks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system.h"
#include "hdf5/driver/io.h"
#include "hdf5/driver/overlay.h"

/* H5F_ACC_... without the calls to libhdf5 that hide in the macros. */
#define FLAG_RDWR 0x01u
#define FLAG_TRUNC 0x02u
#define FLAG_EXCL 0x04u
#define FLAG_CREAT 0x10u
/* H5FD_FEAT_...: those of sec2 but for SUPPORTS_SWMR_IO. */
#define FEATURE_AGGREGATE_METADATA 0x01u
#define FEATURE_ACCUMULATE_METADATA 0x06u
#define FEATURE_DATA_SIEVE 0x08u
#define FEATURE_AGGREGATE_SMALLDATA 0x10u
#define FEATURE_POSIX_COMPAT_HANDLE 0x80u
#define FEATURE_DEFAULT_VFD_COMPATIBLE 0x8000u

/* Of metadata, after a failure. What is beyond it is dropped, and reading that fails. */
#define KEPT_NBYTES_MAX ((size_t)256 << 20)
/* HDF5's own part of an open file, H5FD_t, is 80 bytes in 1.10 to 2.x. */
#define H5FD_NBYTES 256

/* Raw data of fewer bytes is not noted as such, so that there is little to note. */
#define ELEMENTS_NBYTES_MIN 1024

typedef struct open_file {
  _Alignas(16) unsigned char of_hdf5[H5FD_NBYTES];
  const gpufi_h5_api *api;
  gpufi_h5_driver_file *file; /* NULL: nobody asks for failures, HDF5 is told */
  uint64_t restart;           /* number of the writer's end of a finished file; 0 of others */
  int64_t process_id;         /* that opened it */
  int fd;
  dev_t device;
  ino_t inode;
  haddr_t eoa, eof; /* eof counts what is kept as written */
  haddr_t size;     /* of the file on the disk, of which a recycled one has more than HDF5 knows */
  bool ignores_disabled_locks;
  bool is_locked;
  /* After a failure: metadata that HDF5 has written since, and where what it wrote is lost: data,
   * and metadata for which there was no memory. */
  gpufi_h5_overlay overlay;
  gpufi_h5_extent lost_data, lost_metadata; /* none if begin and end are equal */
  char path[GPUFI_H5_DRIVER_PATH_NBYTES];   /* cut if it is longer */
} open_file;

/* --- Failures ------------------------------------------------------------------- */

/* Tell HDF5's error stack, in the words that sec2 has for it. */
static void push(const open_file *f, hid_t major, hid_t minor, const char *operation, int code,
                 uint64_t offset) {
  f->api->Epush2(H5E_DEFAULT, __FILE__, operation, __LINE__, *f->api->E_ERR_CLS, major, minor,
                 "file %s failed: filename = '%s', errno = %d, error message = '%s', offset = %llu",
                 operation, f->path, code, strerror(code), (unsigned long long)offset);
}

static herr_t refuse(const open_file *f, hid_t minor, const char *operation, int code,
                     uint64_t offset) {
  push(f, *f->api->E_IO, minor, operation, code, offset);
  return -1;
}

/* A forked child must neither change its parent's file nor wait for its threads. */
static bool is_parents(const open_file *f) {
  return f->file && f->process_id != getpid();
}

/* Whether writes are accepted and carried out no more. */
static bool only_accepts(const open_file *f) {
  return f->file && (gpufi_h5_latch_is_set(&f->file->latch) || is_parents(f));
}

/* errno of a failure that the writer, who is gone, has not heard of: HDF5 is told then, again and
 * again, that the file is incomplete. 0 if there is none. */
static int unheard_failure(const open_file *f) {
  const bool is_unheard = f->file && !is_parents(f) && gpufi_h5_latch_is_set(&f->file->latch) &&
                          !__atomic_load_n(&f->file->has_writer, __ATOMIC_ACQUIRE) &&
                          !__atomic_load_n(&f->file->has_told, __ATOMIC_ACQUIRE);
  return is_unheard ? f->file->latch.system_error : 0;
}

/* Remember a failure. True if HDF5 is not told, since the writer will ask. */
static bool keep_failure(open_file *f, const char *operation, int code, uint64_t offset) {
  const bool is_kept = f->file && __atomic_load_n(&f->file->has_writer, __ATOMIC_ACQUIRE);
  if (is_kept) {
    gpufi_h5_latch_set(&f->file->latch, operation, code, offset);
  }
  return is_kept;
}

/* Accept a write: keep metadata in memory, and drop data. */
static void accept(open_file *f, int kind, uint64_t offset, const void *bytes, size_t nbytes) {
  if (kind == H5FD_MEM_DRAW) {
    gpufi_h5_extent_grow(&f->lost_data, offset, nbytes);
    return;
  }
  if (!gpufi_h5_overlay_put(&f->overlay, KEPT_NBYTES_MAX, f->fd, offset, bytes, nbytes)) {
    gpufi_h5_extent_grow(&f->lost_metadata, offset, nbytes);
  }
}

/* --- Opening and closing -------------------------------------------------------- */

/* The writer's end, from the access list; NULL if it has none. HDF5 prints nothing of that. */
static gpufi_h5_driver_file *file_of(const gpufi_h5_api *api, hid_t fapl) {
  H5E_auto2_t print;
  void *print_arg;
  const bool is_saved = api->Eget_auto2(H5E_DEFAULT, &print, &print_arg) >= 0;
  if (is_saved) {
    api->Eset_auto2(H5E_DEFAULT, NULL, NULL);
  }
  const gpufi_h5_driver_file *const file = api->Pget_driver_info(fapl);
  if (is_saved) {
    api->Eset_auto2(H5E_DEFAULT, print, print_arg);
  }
  if (!file) {
    api->Eclear2(H5E_DEFAULT);
  }
  return (gpufi_h5_driver_file *)file;
}

/* As sec2: the environment variable counts, or else the access list. Whether files are locked at
 * all HDF5 decides. */
static bool ignores_disabled_locks(const gpufi_h5_api *api, hid_t fapl) {
  const char *text = getenv("HDF5_USE_FILE_LOCKING");
  bool uses_locks = true;
  bool ignores = false;
  if (text && !strcmp(text, "BEST_EFFORT")) {
    return true;
  }
  if (text && (!strcmp(text, "TRUE") || !strcmp(text, "1"))) {
    return false;
  }
  return api->Pget_file_locking && api->Pget_file_locking(fapl, &uses_locks, &ignores) >= 0 &&
         ignores;
}

/* Open the file and learn about it. 0, or errno. */
static int open_path(open_file *f, const char *path, unsigned flags, bool is_recycled) {
  struct stat status;
  int open_flags = flags & FLAG_RDWR ? O_RDWR : O_RDONLY;
  open_flags |= flags & FLAG_CREAT ? O_CREAT : 0;
  open_flags |= flags & FLAG_EXCL ? O_EXCL : 0;
  const int code =
      gpufi_h5_io_open(path, open_flags, flags & FLAG_TRUNC && !is_recycled, &f->fd, &status);
  if (code != 0) {
    return code;
  }
  f->device = status.st_dev;
  f->inode = status.st_ino;
  f->size = (haddr_t)status.st_size;
  f->eof = is_recycled ? 0 : f->size;
  return 0;
}

/* Whether the file is the writer's next one. One that is open already keeps the place: then this
 * one is another, as a file is to which an external link leads. */
static bool is_writers(const gpufi_h5_driver_file *file) {
  return file && !file->is_open && file->process_id == getpid() &&
         __atomic_load_n(&file->has_writer, __ATOMIC_ACQUIRE);
}

/* What the writer is told about opening its next file. */
static void note_opening(gpufi_h5_driver_file *file, const char *path, int code) {
  if (!gpufi_h5_latch_is_set(&file->latch)) {
    file->open_error = code;
    snprintf(file->path, sizeof(file->path), "%s", path);
  }
}

static void attach(open_file *f, gpufi_h5_driver_file *file) {
  gpufi_h5_driver_file_retain(file);
  __atomic_store_n(&file->is_open, true, __ATOMIC_RELAXED);
  f->file = file;
  gpufi_h5_driver_set_target(file, f->fd, file->is_recycled ? f->size : 0);
}

void *gpufi_h5_driver_on_open(const gpufi_h5_api *api, const char *path, unsigned flags, hid_t fapl,
                              haddr_t address_max) {
  gpufi_h5_driver_file *const file = file_of(api, fapl);
  const bool is_next = is_writers(file);
  open_file *f = calloc(1, sizeof(*f));
  if (!f) {
    if (is_next) {
      note_opening(file, path, ENOMEM);
    }
    return NULL;
  }
  f->api = api;
  f->restart = file && file->is_finished ? file->number : 0;
  f->process_id = getpid();
  f->ignores_disabled_locks = ignores_disabled_locks(api, fapl);
  snprintf(f->path, sizeof(f->path), "%s", path);
  /* All that is written to a file after a failure is lost: there must be no second one. */
  int code = is_next && gpufi_h5_latch_is_set(&file->latch) ? file->latch.system_error : 0;
  if (code == 0) {
    code = address_max > GPUFI_H5_ADDRESS_MAX
               ? EFBIG
               : open_path(f, path, flags, is_next && file->is_recycled);
  }
  if (is_next) {
    note_opening(file, path, code);
  }
  if (code != 0) {
    push(f, *api->E_FILE, *api->E_CANTOPENFILE, "open", code, 0);
    free(f);
    return NULL;
  }
  if (is_next) {
    attach(f, file);
  }
  return f;
}

/* Carry out what was deferred, for the last time. */
static void let_go(open_file *f) {
  if (f->file && !is_parents(f)) {
    gpufi_h5_driver_set_target(f->file, -1, 0);
  }
}

/* Give the writer's end back: the next file may have it. */
static void detach(open_file *f) {
  if (f->file) {
    __atomic_store_n(&f->file->is_open, false, __ATOMIC_RELAXED);
    gpufi_h5_driver_file_drop(f->file);
  }
}

herr_t gpufi_h5_driver_on_close(void *opened) {
  open_file *const f = opened;
  const bool may_touch = !is_parents(f);
  const char *operation = "write";
  let_go(f);
  int code = unheard_failure(f);
  if (f->is_locked && f->process_id == getpid()) {
    /* A forked child that lives on has the descriptor, and with it the lock. */
    gpufi_h5_io_lock(f->fd, LOCK_UN);
  }
  if (!gpufi_close(f->fd) && code == 0) {
    code = errno;
    operation = "close";
  }
  const bool fails = code != 0 && may_touch && !keep_failure(f, operation, code, 0);
  if (fails) {
    push(f, *f->api->E_IO, *f->api->E_CANTCLOSEFILE, operation, code, 0);
  }
  gpufi_h5_overlay_fini(&f->overlay);
  detach(f);
  free(f);
  return fails ? -1 : 0;
}

herr_t gpufi_h5_driver_on_delete(const char *path, hid_t fapl) {
  (void)fapl;
  return unlink(path) == 0 ? 0 : -1;
}

/* --- Facts ---------------------------------------------------------------------- */

static int order_of(uint64_t a, uint64_t b) {
  return a < b ? -1 : a > b;
}

/* To HDF5, files that compare equal are one open file. In a forked child, a file that its parent
 * had open has the contents of then for ever, and another process may have finished it: it is none
 * that the child opens, whatever its inode. Each restart has its files for itself: it is told of
 * their failures, and whether they are open. */
int gpufi_h5_driver_on_compare(const void *opened, const void *other) {
  const open_file *const f = opened;
  const open_file *const g = other;
  const bool are_restarts = f->restart != 0 && g->restart != 0;
  const int by_process = order_of((uint64_t)f->process_id, (uint64_t)g->process_id);
  const int by_device = order_of(f->device, g->device);
  const int by_inode = order_of(f->inode, g->inode);
  const int by_restart = are_restarts ? order_of(f->restart, g->restart) : 0;
  return by_process ? by_process : by_device ? by_device : by_inode ? by_inode : by_restart;
}

herr_t gpufi_h5_driver_on_query(const void *opened, unsigned long *features) {
  (void)opened;
  if (features) {
    *features = FEATURE_AGGREGATE_METADATA | FEATURE_ACCUMULATE_METADATA | FEATURE_DATA_SIEVE |
                FEATURE_AGGREGATE_SMALLDATA | FEATURE_POSIX_COMPAT_HANDLE |
                FEATURE_DEFAULT_VFD_COMPATIBLE;
  }
  return 0;
}

haddr_t gpufi_h5_driver_on_get_eoa(const void *opened, int kind) {
  (void)kind;
  return ((const open_file *)opened)->eoa;
}

herr_t gpufi_h5_driver_on_set_eoa(void *opened, int kind, haddr_t address) {
  (void)kind;
  ((open_file *)opened)->eoa = address;
  return 0;
}

haddr_t gpufi_h5_driver_on_get_eof(const void *opened, int kind) {
  (void)kind;
  return ((const open_file *)opened)->eof;
}

herr_t gpufi_h5_driver_on_get_handle(void *opened, hid_t fapl, void **handle) {
  (void)fapl;
  *handle = &((open_file *)opened)->fd;
  return 0;
}

void *gpufi_h5_driver_on_get_info(void *opened) {
  open_file *const f = opened;
  return f->file ? gpufi_h5_driver_on_copy_info(f->file) : NULL;
}

void *gpufi_h5_driver_on_copy_info(const void *file) {
  gpufi_h5_driver_file *const copied = (gpufi_h5_driver_file *)file;
  gpufi_h5_driver_file_retain(copied);
  return copied;
}

herr_t gpufi_h5_driver_on_free_info(void *file) {
  gpufi_h5_driver_file_drop(file);
  return 0;
}

/* --- Reading and writing -------------------------------------------------------- */

static bool has_addresses(haddr_t offset, size_t nbytes) {
  return offset <= GPUFI_H5_ADDRESS_MAX && nbytes <= GPUFI_H5_ADDRESS_MAX - offset;
}

/* Whether bytes that HDF5 has written are in the file, or soon will be: what was deferred of them
 * is carried out. */
static bool settle(const open_file *f, uint64_t offset, size_t nbytes) {
  return !f->file || is_parents(f) || gpufi_h5_driver_settle(f->file, offset, nbytes);
}

/* 0, or errno. */
static int write_bytes(const open_file *f, int kind, uint64_t offset, const void *bytes,
                       size_t nbytes) {
  if (kind == H5FD_MEM_DRAW && f->file && gpufi_h5_driver_defer(f->file, offset, bytes, nbytes)) {
    return 0;
  }
  settle(f, offset, nbytes);
  return gpufi_h5_io_write(f->fd, offset, bytes, nbytes);
}

herr_t gpufi_h5_driver_on_read(void *opened, int kind, hid_t dxpl, haddr_t offset, size_t nbytes,
                               void *bytes) {
  open_file *const f = opened;
  const gpufi_h5_extent *lost = kind == H5FD_MEM_DRAW ? &f->lost_data : &f->lost_metadata;
  (void)dxpl;
  if (!has_addresses(offset, nbytes)) {
    return refuse(f, *f->api->E_READERROR, "read", EFBIG, offset);
  }
  if (kind == H5FD_MEM_DRAW && f->file && f->file->probe && bytes == f->file->probe) {
    f->file->probed = (gpufi_h5_extent){offset, offset + nbytes};
    return 0;
  }
  if (gpufi_h5_extent_overlaps(lost, offset, nbytes) || !settle(f, offset, nbytes)) {
    const int code = f->file ? f->file->latch.system_error : 0;
    return refuse(f, *f->api->E_READERROR, "read", code ? code : EPERM, offset);
  }
  const int code = gpufi_h5_io_read(f->fd, offset, bytes, nbytes);
  if (code != 0) {
    if (!is_parents(f)) {
      keep_failure(f, "read", code, offset);
    }
    return refuse(f, *f->api->E_READERROR, "read", code, offset);
  }
  if (f->file && f->file->is_recycled && offset + nbytes > f->eof) { /* older bytes are there */
    const size_t count = f->eof > offset ? (size_t)(f->eof - offset) : 0;
    memset((char *)bytes + count, 0, nbytes - count);
  }
  gpufi_h5_overlay_apply(&f->overlay, offset, bytes, nbytes);
  return 0;
}

/* The writer learns which bytes are elements, of those that were written last. */
static void note_elements(const open_file *f, int kind, uint64_t offset, size_t nbytes) {
  if (!f->file || is_parents(f) || nbytes == 0) {
    return;
  }
  if (kind == H5FD_MEM_DRAW && f->file->notes_elements && nbytes >= ELEMENTS_NBYTES_MIN) {
    gpufi_h5_extents_add(&f->file->elements, offset, offset + nbytes);
  } else {
    gpufi_h5_extents_remove(&f->file->elements, offset, offset + nbytes);
  }
}

herr_t gpufi_h5_driver_on_write(void *opened, int kind, hid_t dxpl, haddr_t offset, size_t nbytes,
                                const void *bytes) {
  open_file *const f = opened;
  (void)dxpl;
  if (!has_addresses(offset, nbytes)) {
    return refuse(f, *f->api->E_WRITEERROR, "write", EFBIG, offset);
  }
  int code = unheard_failure(f);
  if (code != 0) {
    return refuse(f, *f->api->E_WRITEERROR, "write", code, offset);
  }
  if (only_accepts(f)) {
    accept(f, kind, offset, bytes, nbytes);
  } else {
    code = write_bytes(f, kind, offset, bytes, nbytes);
    if (code == 0) {
      f->size = offset + nbytes > f->size ? offset + nbytes : f->size;
    }
    if (code != 0 && !keep_failure(f, "write", code, offset)) {
      return refuse(f, *f->api->E_WRITEERROR, "write", code, offset);
    }
    if (code != 0) {
      accept(f, kind, offset, bytes, nbytes);
    }
  }
  note_elements(f, kind, offset, nbytes);
  f->eof = offset + nbytes > f->eof ? offset + nbytes : f->eof;
  return 0;
}

herr_t gpufi_h5_driver_on_flush(void *opened, hid_t dxpl, bool is_closing) {
  const open_file *const f = opened;
  if (f->file && !is_parents(f)) {
    gpufi_h5_driver_drain(f->file);
  }
  const int code = unheard_failure(f);
  (void)dxpl;
  (void)is_closing;
  return code == 0 ? 0 : refuse(f, *f->api->E_WRITEERROR, "write", code, 0);
}

/* A recycled file that is flushed keeps its length until it is closed, and with it the mapping that
 * it is written through. */
herr_t gpufi_h5_driver_on_truncate(void *opened, hid_t dxpl, bool is_closing) {
  open_file *const f = opened;
  (void)dxpl;
  if (f->file && !is_parents(f)) {
    gpufi_h5_driver_drain(f->file);
    if (f->file->is_recycled && !is_closing && f->size >= f->eoa) {
      f->eof = f->eoa;
      return 0;
    }
  }
  if (!only_accepts(f) && (f->eoa != f->eof || f->eoa != f->size)) {
    if (f->file) {
      gpufi_h5_driver_end_mapping(f->file);
    }
    const int code = gpufi_h5_io_truncate(f->fd, f->eoa);
    if (code != 0 && !keep_failure(f, "truncation", code, f->eoa)) {
      return refuse(f, *f->api->E_SEEKERROR, "truncation", code, f->eoa);
    }
  }
  f->eof = f->size = f->eoa;
  return 0;
}

/* --- Locks ---------------------------------------------------------------------- */

static herr_t change_lock(open_file *f, const char *name, int operation) {
  const int code = gpufi_h5_io_lock(f->fd, operation);
  if (code == 0 || (code == ENOSYS && f->ignores_disabled_locks)) {
    f->is_locked = code == 0 && operation != LOCK_UN;
    return 0;
  }
  if (f->file && !gpufi_h5_latch_is_set(&f->file->latch)) {
    f->file->open_error = code;
  }
  push(f, *f->api->E_FILE, *f->api->E_CANTOPENFILE, name, code, 0);
  return -1;
}

/* The lock is the open file's, which a forked child shares with its parent. */
static bool takes_no_lock(const open_file *f) {
  return is_parents(f) || (f->file && f->file->is_finished);
}

herr_t gpufi_h5_driver_on_lock(void *opened, bool for_writing) {
  return takes_no_lock(opened) ? 0 : change_lock(opened, "lock", for_writing ? LOCK_EX : LOCK_SH);
}

herr_t gpufi_h5_driver_on_unlock(void *opened) {
  return takes_no_lock(opened) ? 0 : change_lock(opened, "unlock", LOCK_UN);
}
