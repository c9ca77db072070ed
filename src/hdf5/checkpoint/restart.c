/* The public calls that read checkpoints. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/kernel_thread.h"
#include "base/struct.h"
#include "base/system.h"
#include "base/text.h"
#include "hdf5/checkpoint/folder.h"
#include "hdf5/checkpoint/library.h"
#include "hdf5/checkpoint/opened.h"

/* A writer may remove or replace files while the folder is read: so many times it is listed. */
#define LISTINGS_MAX 100

struct gpuf_restart {
  int64_t process_id;
  pthread_mutex_t turn; /* held by calls, one after another */
  gpufi_h5_context context;
  gpufi_h5_session session;
  gpufi_checkpoint_opened opened;
};

/* --- The newest -------------------------------------------------------------- */

/* Whether a failure is one of the file, so that an older one is the next best, and not one of this
 * process or of the moment: errno of those is not among the ones here. */
static bool is_of_file(const gpuf_error *error) {
  switch (error->status) {
  case GPUF_ERR_CORRUPT:
  case GPUF_ERR_UNSUPPORTED:
    return true;
  case GPUF_ERR_HDF5:
  case GPUF_ERR_IO:
    switch (error->native_code) {
    case 0:
    case EIO: /* its bytes cannot be read any more */
    case ENOENT:
    case ELOOP:
    case ENXIO:
      return true;
    default:
      return false;
    }
  default:
    return false;
  }
}

static void note_skipped(gpuf_restart_report *report, int64_t step, const gpuf_error *error) {
  const size_t used = strlen(report->message);
  const size_t left = sizeof(report->message) - used;
  const int needed = snprintf(report->message + used, left, "%sstep %" PRId64 ": %s",
                              used ? "; " : "", step, error->message);
  if (needed < 0 || (size_t)needed >= left) {
    gpufi_text_make_utf8(report->message); /* it was cut, perhaps within a character */
  }
  if (report->skipped_count++ == 0) {
    report->skipped_step = step;
  }
}

/* A file that was there when the folder was listed. */
typedef struct listed_file {
  int fd; /* -1: it could not be held */
  struct stat status;
} listed_file;

/* The system gives the inode of a file that is held to no other file. Holding it is not reading
 * it. */
static listed_file hold(const char *path) {
  listed_file file = {.fd = gpufi_open(path, O_PATH | O_NOFOLLOW, 0)};
  if (file.fd < 0 || fstat(file.fd, &file.status) != 0) {
    lstat(path, &file.status);
  }
  return file;
}

static void let_go(const listed_file *file) {
  if (file->fd >= 0) {
    gpufi_close(file->fd);
  }
}

/* Whether the file that was there when the folder was listed is no longer: its writer keeps newer
 * ones, or has replaced it, and with it its shards. What failed does not tell: HDF5 asks for the
 * path once more when it has opened the file, and has no errno for that; and what a writer recycles
 * has other bytes. Of a network's file system that gives an inode away though the file is held, the
 * time of the change tells. */
static bool has_gone(const char *path, const listed_file *file) {
  const struct stat *const before = &file->status;
  struct stat found;
  if (lstat(path, &found) != 0) {
    return errno == ENOENT;
  }
  return found.st_ino != before->st_ino || found.st_dev != before->st_dev ||
         found.st_size != before->st_size || found.st_ctim.tv_sec != before->st_ctim.tv_sec ||
         found.st_ctim.tv_nsec != before->st_ctim.tv_nsec;
}

/* Of the checkpoint that was opened. */
static void report_application(const gpuf_restart *r, gpuf_restart_report *report) {
  const gpufi_checkpoint_value *const value =
      gpufi_checkpoint_find_value(&r->opened.contents, GPUFI_CHECKPOINT_APPLICATION);
  if (value && value->kind == GPUFI_CHECKPOINT_TEXT) {
    snprintf(report->application, sizeof(report->application), "%s", value->text);
    gpufi_text_make_utf8(report->application); /* a program may have added a longer one by itself */
  }
}

/* None of the files can be used: damaged, unless the system refused to read one, whose errno is
 * `code`. */
static gpuf_status fail_all(const gpufi_checkpoint_folder *folder, size_t count, int64_t code,
                            const gpuf_restart_report *report, gpuf_error *err) {
  return gpufi_fail(err, code ? GPUF_ERR_IO : GPUF_ERR_CORRUPT, code,
                    "none of the %zu checkpoints '%s' in '%s' %s: %s", count, folder->prefix,
                    folder->path, code ? "can be read" : "is whole", report->message);
}

/* HDF5 1.10 may lose an identifier where it gets no memory, and then complains of that alone, or of
 * every file from then on. What it says of a damaged file, it says again. */
static gpuf_status open_checkpoint(gpuf_restart *r, const char *path, int64_t step,
                                   gpuf_error *err) {
  gpuf_status status = gpufi_checkpoint_opened_open(&r->opened, &r->session, path, step, err);
  if (status == GPUF_ERR_HDF5 && !err->native_code) {
    status = gpufi_checkpoint_opened_open(&r->opened, &r->session, path, step, err);
  }
  if (status == GPUF_ERR_HDF5 && !err->native_code) {
    gpufi_h5_enter(&r->session);
    const bool works = gpufi_h5_works(&r->session);
    gpufi_h5_leave(&r->session);
    status =
        works ? status
              : gpufi_fail(err, GPUF_ERR_STATE, 0,
                           "HDF5 can no longer make or open files in this process, as may happen "
                           "once it has lacked memory; the checkpoint may be whole: restart the "
                           "program");
  }
  return status;
}

/* `*has_changed`: the folder is to be listed again. */
static gpuf_status open_newest(gpuf_restart *r, const gpufi_checkpoint_folder *folder,
                               const int64_t *steps, size_t count, bool *has_changed,
                               gpuf_restart_report *report, gpuf_error *err) {
  gpuf_error error = {0};
  int64_t code = 0;
  *has_changed = false;
  for (size_t i = 0; i < count; i++) {
    const gpufi_checkpoint_path path = gpufi_checkpoint_path_of(folder, steps[i]);
    const listed_file file = hold(path.text);
    const gpuf_status status = open_checkpoint(r, path.text, steps[i], &error);
    *has_changed = status != GPUF_OK && has_gone(path.text, &file);
    let_go(&file);
    if (status == GPUF_OK) {
      report->step = steps[i];
      memcpy(report->path, path.text, sizeof(report->path));
      report_application(r, report);
      return GPUF_OK;
    }
    if (!is_of_file(&error) || *has_changed) {
      return gpufi_fail(err, status == GPUF_ERR_HDF5 && error.native_code ? GPUF_ERR_IO : status,
                        error.native_code, "step %" PRId64 " ('%s'): %s", steps[i], path.text,
                        error.message);
    }
    code = code || status == GPUF_ERR_CORRUPT ? code : error.native_code;
    note_skipped(report, steps[i], &error);
  }
  return count == 0 ? GPUF_OK : fail_all(folder, count, code, report, err);
}

/* One listing of the folder. */
static gpuf_status open_listed(gpuf_restart *r, const gpufi_checkpoint_folder *folder,
                               int64_t step_max, bool *has_changed, gpuf_restart_report *report,
                               gpuf_error *err) {
  int64_t *steps = NULL;
  size_t count = 0;
  size_t newer = 0;
  gpuf_status status = gpufi_checkpoint_folder_list(folder, &steps, &count, err);
  if (status == GPUF_OK) {
    while (step_max >= 0 && newer < count && steps[newer] > step_max) {
      newer++;
    }
    status = open_newest(r, folder, steps + newer, count - newer, has_changed, report, err);
  }
  free(steps);
  return status;
}

/* What opening takes besides; not on the stack, which may be that of a small thread. */
typedef struct search {
  gpufi_checkpoint_folder folder;
  gpuf_restart_report report;
  gpuf_error error;
} search;

static void forget_findings(search *s) {
  memset(&s->report, 0, sizeof(s->report));
  memset(&s->error, 0, sizeof(s->error));
  s->report.struct_nbytes = sizeof(s->report);
  s->report.step = s->report.skipped_step = -1;
}

static gpuf_status fail_changing(const search *s, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_IO, ESTALE,
                    "the checkpoints '%s' in '%s' were removed or replaced %d times before they "
                    "could be opened: try again, or let the writer keep more of them (%s)",
                    s->folder.prefix, s->folder.path, LISTINGS_MAX, s->error.message);
}

static gpuf_status open_from(gpuf_restart *r, search *s, int64_t step_max, gpuf_error *err) {
  bool has_changed = true;
  gpuf_status status = GPUF_OK;
  gpufi_h5_context_set(&r->context);
  for (int times = 0; has_changed && times < LISTINGS_MAX; times++) {
    forget_findings(s);
    has_changed = false;
    status = open_listed(r, &s->folder, step_max, &has_changed, &s->report, &s->error);
  }
  gpufi_h5_context_set(NULL);
  if (has_changed) {
    return fail_changing(s, err);
  }
  if (status != GPUF_OK && err) { /* of the last listing */
    *err = s->error;
  }
  return status;
}

static gpuf_status restart_init(gpuf_restart *r, gpuf_error *err) {
  r->process_id = getpid();
  r->opened.master.id = H5I_INVALID_HID;
  pthread_mutex_init(&r->turn, NULL);
  gpuf_status status = gpufi_checkpoint_library(&r->context.api, err);
  if (status == GPUF_OK) {
    const gpuf_h5_options options = gpufi_checkpoint_h5_options();
    gpufi_h5_context_set(&r->context);
    status = gpufi_h5_session_init(&r->session, &options, err);
    gpufi_h5_context_set(NULL);
  }
  return status;
}

gpuf_status gpuf_restart_open(const char *directory, const char *prefix, int64_t step_max,
                              gpuf_restart **restart, gpuf_restart_report *report,
                              gpuf_error *err) {
  GPUFI_REQUIRE(restart, err);
  gpuf_status status =
      report ? gpufi_struct_check(report, sizeof(*report), "GPUF_RESTART_REPORT_INIT", err)
             : GPUF_OK;
  if (status != GPUF_OK) {
    return status;
  }
  gpuf_restart *const r = calloc(1, sizeof(*r));
  search *const s = malloc(sizeof(*s));
  if (!r || !s) {
    free(r);
    free(s);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes",
                      sizeof(*r) + sizeof(*s));
  }
  forget_findings(s);
  status = restart_init(r, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_folder_open(&s->folder, directory, prefix, err);
  }
  if (status == GPUF_OK) {
    status = open_from(r, s, step_max, err);
    gpufi_checkpoint_folder_close(&s->folder);
  }
  if (report) {
    gpufi_struct_write(report, &s->report, sizeof(s->report));
  }
  free(s);
  const bool is_open = status == GPUF_OK && r->opened.master.id >= 0;
  if (!is_open) {
    gpuf_restart_close(r);
  }
  if (status == GPUF_OK) {
    *restart = is_open ? r : NULL;
  }
  return status;
}

void gpuf_restart_close(gpuf_restart *r) {
  if (!r || r->process_id != getpid()) {
    return;
  }
  gpufi_checkpoint_opened_close(&r->opened, &r->session);
  pthread_mutex_destroy(&r->turn);
  free(r);
}

/* --- Reading ----------------------------------------------------------------- */

static gpuf_status check_restart(const gpuf_restart *restart, gpuf_error *err) {
  GPUFI_REQUIRE(restart, err);
  return gpufi_check_process(restart->process_id, err);
}

static gpuf_status find_tensor(const gpuf_restart *r, const char *name,
                               const gpufi_checkpoint_tensor **found, gpuf_error *err) {
  *found = gpufi_checkpoint_find_tensor(&r->opened.contents, name);
  return *found ? GPUF_OK
                : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                             "the checkpoint of step %" PRId64 " has no tensor '%s'",
                             r->opened.contents.step, name);
}

static gpuf_status check_part(const gpufi_checkpoint_tensor *stored, const gpuf_tensor *tensor,
                              const gpuf_part *part, gpuf_error *err) {
  const gpuf_tensor *const whole = &stored->tensor;
  if (tensor->ndim != whole->ndim) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "tensor '%s' has %d axes, and the given one %d",
                      stored->name, (int)whole->ndim, (int)tensor->ndim);
  }
  for (int32_t axis = 0; axis < whole->ndim; axis++) {
    if (part->shape[axis] != whole->shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "part->shape[%d] is %" PRId64 ", and tensor '%s' has %" PRId64
                        " elements along that axis",
                        (int)axis, part->shape[axis], stored->name, whole->shape[axis]);
    }
  }
  return GPUF_OK;
}

gpuf_status gpuf_restart_read(gpuf_restart *restart, const char *name, const gpuf_tensor *tensor,
                              const gpuf_part *part, gpuf_error *err) {
  const gpufi_checkpoint_tensor *stored;
  gpuf_part own;
  GPUFI_REQUIRE(name, err);
  GPUFI_REQUIRE(tensor, err);
  gpuf_status status = check_restart(restart, err);
  if (status == GPUF_OK && gpufi_in_kernel()) { /* whose turn it is may wait for the kernel */
    status = gpufi_refuse_in_kernel(err);
  }
  if (status == GPUF_OK) {
    status = gpuf_tensor_check(tensor, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_struct_read(&own, sizeof(own), part, "GPUF_PART_INIT", err);
  }
  if (status == GPUF_OK) {
    status = find_tensor(restart, name, &stored, err);
  }
  if (status == GPUF_OK && part) {
    status = check_part(stored, tensor, &own, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  pthread_mutex_lock(&restart->turn);
  gpufi_h5_context_set(&restart->context);
  status = gpufi_checkpoint_opened_read(&restart->opened, &restart->session, stored,
                                        part ? own.start : NULL, tensor, err);
  gpufi_h5_context_set(NULL);
  pthread_mutex_unlock(&restart->turn);
  return status;
}

const char *gpuf_restart_name(const gpuf_restart *restart, size_t index) {
  return restart && index < restart->opened.contents.tensor_count
             ? restart->opened.contents.tensors[index].name
             : NULL;
}

gpuf_status gpuf_restart_describe(gpuf_restart *restart, const char *name, gpuf_tensor *tensor,
                                  gpuf_error *err) {
  const gpufi_checkpoint_tensor *stored;
  GPUFI_REQUIRE(name, err);
  GPUFI_REQUIRE(tensor, err);
  gpuf_status status = check_restart(restart, err);
  if (status == GPUF_OK) {
    status = find_tensor(restart, name, &stored, err);
  }
  if (status == GPUF_OK) {
    tensor->dtype = stored->tensor.dtype;
    tensor->ndim = stored->tensor.ndim;
    memcpy(tensor->shape, stored->tensor.shape, sizeof(tensor->shape));
  }
  return status;
}

/* Copy the value; text stays the restart's. */
static gpuf_status get_value(const gpuf_restart *r, const char *name, gpufi_checkpoint_kind kind,
                             gpufi_checkpoint_value *found, gpuf_error *err) {
  static const char *const kinds[] = {"an int64", "a float64", "a text"};
  GPUFI_REQUIRE(name, err);
  const gpuf_status status = check_restart(r, err);
  if (status != GPUF_OK) {
    return status;
  }
  const gpufi_checkpoint_value *const value =
      gpufi_checkpoint_find_value(&r->opened.contents, name);
  if (!value) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the checkpoint of step %" PRId64 " has no value '%s'",
                      r->opened.contents.step, name);
  }
  if (value->kind != kind) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "value '%s' is %s, not %s", name,
                      kinds[value->kind], kinds[kind]);
  }
  *found = *value;
  return GPUF_OK;
}

gpuf_status gpuf_restart_get_int64(gpuf_restart *restart, const char *name, int64_t *value,
                                   gpuf_error *err) {
  gpufi_checkpoint_value found = {.name = NULL};
  GPUFI_REQUIRE(value, err);
  const gpuf_status status = get_value(restart, name, GPUFI_CHECKPOINT_INT64, &found, err);
  if (status == GPUF_OK) {
    *value = found.int64;
  }
  return status;
}

gpuf_status gpuf_restart_get_float64(gpuf_restart *restart, const char *name, double *value,
                                     gpuf_error *err) {
  gpufi_checkpoint_value found = {.name = NULL};
  GPUFI_REQUIRE(value, err);
  const gpuf_status status = get_value(restart, name, GPUFI_CHECKPOINT_FLOAT64, &found, err);
  if (status == GPUF_OK) {
    *value = found.float64;
  }
  return status;
}

gpuf_status gpuf_restart_get_text(gpuf_restart *restart, const char *name, const char **text,
                                  gpuf_error *err) {
  gpufi_checkpoint_value found = {.name = NULL};
  GPUFI_REQUIRE(text, err);
  const gpuf_status status = get_value(restart, name, GPUFI_CHECKPOINT_TEXT, &found, err);
  if (status == GPUF_OK) {
    *text = found.text;
  }
  return status;
}
