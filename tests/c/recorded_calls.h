/* The system calls by which the program under test changes the files of one folder, recorded in
 * their order with what they wrote. They stand before libc's for what is linked into the program.
 * Thread-safety: any thread. */
#ifndef GPUFI_TEST_RECORDED_CALLS_H
#define GPUFI_TEST_RECORDED_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NAME_NBYTES 80
#define RECORDED_MAX 20000
#define FILES_MAX 300

typedef enum record_kind {
  RECORD_WRITE,
  RECORD_TRUNCATE,
  RECORD_SYNC_FILE,
  RECORD_CREATE, /* these four change names */
  RECORD_RENAME,
  RECORD_LINK,
  RECORD_UNLINK,
  RECORD_SYNC_FOLDER,
  RECORD_PROMISE, /* the program was told that version `offset` is finished */
} record_kind;

typedef struct record {
  record_kind kind;
  int file; /* index of the file, in the order of creation; -1 where none is meant */
  uint64_t offset;
  size_t nbytes; /* of the bytes, or the size that a file is truncated to */
  unsigned char *bytes;
  char from[NAME_NBYTES], to[NAME_NBYTES];
} record;

static record records[RECORDED_MAX];
static int record_count;
static ino_t inodes[FILES_MAX]; /* of the files, by index; the last one of a number counts */
static int recorded_file_count;
static char recorded_folder[4096]; /* absolute; empty: nothing is recorded */
static int recorded_copy_count;    /* of the writes, those through mappings */
static bool record_is_full;
static bool naming_fails; /* the fsync of the folder that follows a master's or a file's naming */
static pthread_mutex_t record_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The mutex is held in what follows, but where something else is said. */
static inline record *add_record(record_kind kind, int file) {
  if (record_count == RECORDED_MAX) {
    record_is_full = true;
    record_count--;
  }
  record *const r = &records[record_count++];
  memset(r, 0, sizeof(*r));
  r->kind = kind;
  r->file = file;
  return r;
}

static inline int file_of_inode(ino_t inode) {
  for (int i = recorded_file_count - 1; i >= 0; i--) {
    if (inodes[i] == inode) {
      return i;
    }
  }
  return -1;
}

/* -1 for a file that is not recorded, and where nothing is. */
static inline int file_of(int fd) {
  struct stat status;
  return *recorded_folder && syscall(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) == 0
             ? file_of_inode(status.st_ino)
             : -1;
}

/* The name in the folder; NULL for another path, and for the lock, which is empty after any end. */
static inline const char *name_in_folder(const char *path) {
  const size_t nbytes = strlen(recorded_folder);
  const bool is_there = nbytes > 0 && strncmp(path, recorded_folder, nbytes) == 0 &&
                        path[nbytes] == '/' && !strstr(path, ".lock");
  return is_there ? path + nbytes + 1 : NULL;
}

static inline void record_names(record_kind kind, const char *from, const char *to) {
  const char *const name = name_in_folder(from);
  if (name) {
    record *const r = add_record(kind, -1);
    snprintf(r->from, sizeof(r->from), "%s", name);
    if (to) {
      snprintf(r->to, sizeof(r->to), "%s", name_in_folder(to));
    }
  }
}

static inline void record_promise(uint64_t version) {
  pthread_mutex_lock(&record_mutex);
  if (*recorded_folder) {
    add_record(RECORD_PROMISE, -1)->offset = version;
  }
  pthread_mutex_unlock(&record_mutex);
}

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN ssize_t pwrite64(int fd, const void *bytes, size_t nbytes, off64_t offset) {
  pthread_mutex_lock(&record_mutex);
  const int file = file_of(fd);
  const ssize_t done = syscall(SYS_pwrite64, fd, bytes, nbytes, offset);
  if (file >= 0 && done > 0) {
    record *const r = add_record(RECORD_WRITE, file);
    r->offset = (uint64_t)offset;
    r->nbytes = (size_t)done;
    r->bytes = malloc((size_t)done);
    memcpy(r->bytes, bytes, (size_t)done);
  }
  pthread_mutex_unlock(&record_mutex);
  return done;
}

/* Where recorded files are mapped; of two in one place the last one counts. */
#define MAPPINGS_MAX 1000
typedef struct mapping {
  const char *begin;
  size_t nbytes;
  int file;
} mapping;
static mapping mappings[MAPPINGS_MAX];
static int mapping_count;

HIDDEN void *mmap64(void *place, size_t nbytes, int protection, int flags, int fd, off64_t offset) {
  void *const base = (void *)syscall(SYS_mmap, place, nbytes, protection, flags, fd, offset);
  if (fd >= 0 && base != MAP_FAILED) {
    pthread_mutex_lock(&record_mutex);
    const int file = file_of(fd);
    if (file >= 0 && mapping_count < MAPPINGS_MAX) {
      mappings[mapping_count++] = (mapping){base, nbytes, file};
    }
    record_is_full = record_is_full || mapping_count == MAPPINGS_MAX;
    pthread_mutex_unlock(&record_mutex);
  }
  return base;
}

/* NULL where nothing recorded is mapped. */
static inline const mapping *mapping_at(const char *at) {
  int i = mapping_count;
  while (i > 0 &&
         (at < mappings[i - 1].begin || at >= mappings[i - 1].begin + mappings[i - 1].nbytes)) {
    i--;
  }
  return i > 0 ? &mappings[i - 1] : NULL;
}

HIDDEN ssize_t process_vm_readv(pid_t process, const struct iovec *to, unsigned long to_count,
                                const struct iovec *from, unsigned long from_count,
                                unsigned long flags) {
  pthread_mutex_lock(&record_mutex);
  const ssize_t done =
      syscall(SYS_process_vm_readv, process, to, to_count, from, from_count, flags);
  const mapping *const m = mapping_at(to->iov_base);
  if (done > 0 && *recorded_folder && m) {
    record *const r = add_record(RECORD_WRITE, m->file);
    r->offset = (uint64_t)((const char *)to->iov_base - m->begin);
    r->nbytes = (size_t)done;
    r->bytes = malloc((size_t)done);
    memcpy(r->bytes, from->iov_base, (size_t)done);
    recorded_copy_count++;
  }
  pthread_mutex_unlock(&record_mutex);
  return done;
}

HIDDEN int ftruncate64(int fd, off64_t nbytes) {
  pthread_mutex_lock(&record_mutex);
  const int file = file_of(fd);
  const int code = (int)syscall(SYS_ftruncate, fd, nbytes);
  if (file >= 0 && code == 0) {
    add_record(RECORD_TRUNCATE, file)->nbytes = (size_t)nbytes;
  }
  pthread_mutex_unlock(&record_mutex);
  return code;
}

/* Whether the name that was changed last is a checkpoint's: it has one dot. */
static inline bool was_master_named(void) {
  int i = record_count - 1;
  while (i >= 0 && records[i].kind != RECORD_RENAME && records[i].kind != RECORD_LINK &&
         records[i].kind != RECORD_CREATE && records[i].kind != RECORD_SYNC_FOLDER) {
    i--;
  }
  const char *const dot = i >= 0 && *records[i].to != '.' ? strchr(records[i].to, '.') : NULL;
  return dot && strcmp(dot, ".h5") == 0;
}

HIDDEN int fsync(int fd) {
  struct stat status;
  pthread_mutex_lock(&record_mutex);
  const int file = file_of(fd);
  const bool is_folder = *recorded_folder && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
  const bool fails = is_folder && naming_fails && was_master_named();
  if (!fails && (file >= 0 || is_folder)) { /* the real one would only cost time */
    add_record(file >= 0 ? RECORD_SYNC_FILE : RECORD_SYNC_FOLDER, file);
  }
  pthread_mutex_unlock(&record_mutex);
  errno = fails ? EIO : errno;
  return fails ? -1 : 0;
}

HIDDEN int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
  pthread_mutex_lock(&record_mutex);
  const int code = (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
  const int error = errno;
  if (code == 0) {
    record_names(RECORD_RENAME, from, to);
  }
  pthread_mutex_unlock(&record_mutex);
  errno = error;
  return code;
}

HIDDEN int rename(const char *from, const char *to) {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

HIDDEN int link(const char *from, const char *to) {
  pthread_mutex_lock(&record_mutex);
  const int code = (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
  const int error = errno;
  if (code == 0) {
    record_names(RECORD_LINK, from, to);
  }
  pthread_mutex_unlock(&record_mutex);
  errno = error;
  return code;
}

HIDDEN int unlink(const char *path) {
  pthread_mutex_lock(&record_mutex);
  const int code = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
  const int error = errno;
  if (code == 0) {
    record_names(RECORD_UNLINK, path, NULL);
  }
  pthread_mutex_unlock(&record_mutex);
  errno = error;
  return code;
}

/* The mutex is held. */
static inline void record_open(int fd, const char *path, int flags, bool is_new) {
  struct stat status;
  const char *const name = name_in_folder(path);
  if (!name || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return;
  }
  record_is_full = record_is_full || recorded_file_count == FILES_MAX;
  if (is_new && recorded_file_count < FILES_MAX) {
    inodes[recorded_file_count] = status.st_ino;
    record *const r = add_record(RECORD_CREATE, recorded_file_count++);
    snprintf(r->from, sizeof(r->from), "%s", name);
  } else if (flags & O_TRUNC) {
    add_record(RECORD_TRUNCATE, file_of_inode(status.st_ino));
  }
}

HIDDEN int open64(const char *path, int flags, ...) {
  struct stat status;
  va_list args;
  va_start(args, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
  va_end(args);
  pthread_mutex_lock(&record_mutex);
  const bool is_new = flags & O_CREAT && lstat(path, &status) != 0;
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  const int error = errno;
  if (fd >= 0) {
    record_open(fd, path, flags, is_new);
  }
  pthread_mutex_unlock(&record_mutex);
  errno = error;
  return fd;
}

#endif
