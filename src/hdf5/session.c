#include "hdf5/session.h"

#include "base/error.h"
#include "base/struct.h"
#include "base/system.h"
#include "hdf5/section.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED_MAX 3
#define THREADS_DEFAULT_MAX 16
#define THREADS_MAX 64

static _Thread_local const gpufi_h5_context *thread_context;

void gpufi_h5_context_set(const gpufi_h5_context *context) {
  thread_context = context;
}

static void lock(const gpufi_h5_session *session) {
  if (session->options.lock) {
    session->options.lock(session->options.lock_arg);
  }
}

static void unlock(const gpufi_h5_session *session) {
  if (session->options.unlock) {
    session->options.unlock(session->options.lock_arg);
  }
}

/* Binding calls HDF5. */
static gpuf_status bind(gpufi_h5_session *session, gpuf_error *err) {
  session->context = thread_context;
  session->api = session->context ? session->context->api : gpufi_h5_bound_already();
  if (session->api) {
    return GPUF_OK;
  }
  lock(session);
  const gpuf_status status = gpufi_h5_bound(&session->api, err);
  unlock(session);
  return status;
}

gpuf_status gpufi_h5_session_init(gpufi_h5_session *session, const gpuf_h5_options *options,
                                  gpuf_error *err) {
  memset(session, 0, sizeof(*session));
  const gpuf_status status = gpufi_struct_read(&session->options, sizeof(session->options), options,
                                               "GPUF_H5_OPTIONS_INIT", err);
  if (status != GPUF_OK) {
    return status;
  }
  if (!session->options.lock != !session->options.unlock) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "options.lock and options.unlock must both be set or both be NULL");
  }
  if (session->options.codec < GPUF_H5_CODEC_GPUFETCH ||
      session->options.codec > GPUF_H5_CODEC_BITSHUFFLE_LZ4) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "options.codec %d is not a gpuf_h5_codec",
                      (int)session->options.codec);
  }
  if (session->options.thread_count < 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "options.thread_count %d is negative",
                      (int)session->options.thread_count);
  }
  gpuf_status outcome = gpufi_h5_sections_check(err);
  if (outcome == GPUF_OK) {
    outcome = bind(session, err);
  }
  return outcome;
}

int32_t gpufi_h5_session_thread_count(const gpufi_h5_session *session) {
  const int32_t wanted = session->options.thread_count;
  const int32_t most = wanted ? THREADS_MAX : THREADS_DEFAULT_MAX;
  const int32_t count = wanted ? wanted : gpufi_cpu_count();
  return count < most ? count : most;
}

/* The caller's lock comes first. It is not kept while the process forks: the thread that forks may
 * want it for that. */
void gpufi_h5_enter(gpufi_h5_session *session) {
  if (session->entered) {
    return;
  }
  lock(session);
  while (!gpufi_h5_section_begin()) {
    unlock(session);
    gpufi_h5_sections_wait();
    lock(session);
  }
  session->entered = true;
  /* Fails where the program set its printing by the 1.6 interface; then it stays as it is. */
  session->printing_saved =
      session->api->Eget_auto2(H5E_DEFAULT, &session->print, &session->print_arg) >= 0;
  if (session->printing_saved) {
    session->api->Eset_auto2(H5E_DEFAULT, NULL, NULL);
  }
}

void gpufi_h5_leave(gpufi_h5_session *session) {
  if (!session->entered) {
    return;
  }
  if (session->printing_saved) {
    session->api->Eset_auto2(H5E_DEFAULT, session->print, session->print_arg);
  }
  session->entered = false;
  gpufi_h5_section_end();
  unlock(session);
}

/* What the error stack says, innermost first: the cause before its consequences. */
typedef struct quote {
  const gpufi_h5_api *api;
  bool write_failed; /* a driver could not write to a file or extend it */
  bool read_failed;  /* a driver could not read a file */
  bool lacks_memory; /* HDF5 got none from the system */
  int count;
  int system_error; /* errno of the innermost message that names one, else 0 */
  char text[GPUF_ERROR_MESSAGE_NBYTES];
} quote;

/* HDF5's drivers end their messages like this: "file write failed: time = ..., filename = 'x.h5',
 * file descriptor = 3, errno = 28, error message = 'No space left on device', ...". The last place
 * counts, since a file's name may hold anything. */
static int system_error_in(const char *message) {
  static const char key[] = "errno = ";
  const char *last = NULL;
  for (const char *at = message; (at = strstr(at, key)); at += strlen(key)) {
    last = at + strlen(key);
  }
  return last ? (int)strtol(last, NULL, 10) : 0;
}

/* HDF5 says so where memory is not to be had. Space in a file has words and numbers of its own. */
static bool says_no_memory(const gpufi_h5_api *api, const H5E_error2_t *entry) {
  static const char *const words[] = {"memory", "H5MM_", "root group symbol table entry"};
  bool is_named = entry->maj_num == *api->E_RESOURCE;
  for (size_t i = 0; entry->desc && i < sizeof(words) / sizeof(*words); i++) {
    is_named = is_named || strstr(entry->desc, words[i]);
  }
  return is_named && (entry->min_num == *api->E_NOSPACE || entry->min_num == *api->E_CANTALLOC);
}

static herr_t quote_entry(unsigned n, const H5E_error2_t *entry, void *arg) {
  quote *quoted = arg;
  const gpufi_h5_api *api = quoted->api;
  const size_t used = strlen(quoted->text);
  const bool is_write = entry->maj_num == *api->E_IO && (entry->min_num == *api->E_WRITEERROR ||
                                                         entry->min_num == *api->E_SEEKERROR);
  const bool is_read = entry->maj_num == *api->E_IO && entry->min_num == *api->E_READERROR;
  const bool names_error = entry->desc && system_error_in(entry->desc);
  /* The driver's own entry; those above it say that others could not go on. */
  quoted->write_failed |= is_write && (n == 0 || names_error);
  quoted->read_failed |= is_read && names_error;
  quoted->lacks_memory |= n == 0 && says_no_memory(api, entry);
  if (entry->desc && !quoted->system_error) {
    quoted->system_error = system_error_in(entry->desc);
  }
  if (entry->desc && quoted->count < QUOTED_MAX) {
    snprintf(quoted->text + used, sizeof(quoted->text) - used, "%s%s", quoted->count ? " < " : "",
             entry->desc);
    for (char *c = quoted->text + used; *c; c++) {
      *c = *c == '\n' ? ' ' : *c; /* dates in messages end their line */
    }
    quoted->count++;
  }
  return 0;
}

/* Read and clear the error stack. */
static void quote_errors(gpufi_h5_session *session, quote *quoted) {
  *quoted = (quote){.api = session->api};
  session->api->Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, quote_entry, quoted);
  session->api->Eclear2(H5E_DEFAULT);
  if (quoted->write_failed || quoted->read_failed) {
    gpufi_h5_failure_note(&session->file,
                          (gpufi_h5_failure){
                              .has_failed = true,
                              .was_read = !quoted->write_failed,
                              .has_lost = quoted->read_failed || session->uses_chunk_cache,
                              .system_error = quoted->system_error,
                          });
  }
}

/* Releases before 1.12 read the file to say which one it is, for which they may have to make room
 * in their cache first. Where the system refuses that, it is the file that the call dealt with
 * before. */
void gpufi_h5_use_file(gpufi_h5_session *session, hid_t id) {
  const gpufi_h5_file found = gpufi_h5_file_of(session->api, id);
  if (found.api || !session->file.api) {
    session->file = found;
  } else {
    quote quoted;
    quote_errors(session, &quoted);
  }
}

static gpuf_status fail(const quote *quoted, const char *format, va_list args, gpuf_error *err) {
  char what[GPUF_ERROR_MESSAGE_NBYTES / 2];
  vsnprintf(what, sizeof(what), format, args);
  /* Without memory HDF5 may be unable to say anything. */
  const bool lacks_memory = quoted->lacks_memory || quoted->count == 0;
  return gpufi_fail(err, lacks_memory ? GPUF_ERR_NO_MEMORY : GPUF_ERR_HDF5, quoted->system_error,
                    "%s; HDF5 says: %s", what, quoted->count ? quoted->text : "nothing");
}

gpuf_status gpufi_h5_fail(gpufi_h5_session *session, gpuf_error *err, const char *format, ...) {
  quote quoted;
  va_list args;
  quote_errors(session, &quoted);
  va_start(args, format);
  const gpuf_status status = fail(&quoted, format, args, err);
  va_end(args);
  return status;
}

gpuf_status gpufi_h5_fail_if_refused(gpufi_h5_session *session, gpuf_error *err, const char *format,
                                     ...) {
  quote quoted;
  va_list args;
  quote_errors(session, &quoted);
  if (!quoted.write_failed && !quoted.read_failed && !quoted.lacks_memory) {
    return GPUF_OK;
  }
  va_start(args, format);
  const gpuf_status status = fail(&quoted, format, args, err);
  va_end(args);
  return status;
}

void gpufi_h5_discard_errors(gpufi_h5_session *session) {
  quote quoted;
  quote_errors(session, &quoted);
}

/* No file can have this name: that of a file of the core driver, which keeps none on a disk. */
#define NO_FILE "/dev/null/gpufetch"

bool gpufi_h5_works(gpufi_h5_session *session) {
  static const hsize_t count = 1;
  const gpufi_h5_api *const api = session->api;
  const hid_t access = api->Pcreate(*api->P_CLS_FILE_ACCESS_ID);
  const hid_t creation = api->Pcreate(*api->P_CLS_DATASET_CREATE_ID);
  const hid_t space = api->Screate_simple(1, &count, NULL);
  const bool is_set =
      api->Pset_fapl_core(access, 4096, false) >= 0 && api->Pset_chunk(creation, 1, &count) >= 0;
  const hid_t file = is_set ? api->Fcreate(NO_FILE, GPUFI_H5F_ACC_TRUNC, H5P_DEFAULT, access) : -1;
  const hid_t dataset = file >= 0 ? api->Dcreate2(file, "x", *api->T_STD_U8LE, space, H5P_DEFAULT,
                                                  creation, H5P_DEFAULT)
                                  : -1;
  const hid_t ids[] = {dataset, space, creation, access, file};
  for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
    gpufi_h5_close(session, ids[i]);
  }
  gpufi_h5_discard_errors(session);
  return dataset >= 0;
}

void gpufi_h5_close(gpufi_h5_session *session, hid_t id) {
  if (id >= 0) {
    session->api->Idec_ref(id);
  }
}
