/* One public call's dealings with HDF5: the bound library, the caller's lock, the error stack. */
#ifndef GPUFI_HDF5_SESSION_H
#define GPUFI_HDF5_SESSION_H

#include <stdatomic.h>

#include "hdf5/failures.h"

/* What a thread of a checkpoint, or of an asynchronous write, gives all its calls beside their
 * options. */
typedef struct gpufi_h5_context {
  gpufi_h5_api *api;              /* the library that it enters instead of the bound one */
  struct gpufi_h5_digest *digest; /* the chunks that it writes are added to it; may be NULL */
  /* The file that it writes, whose failures HDF5 is not told; may be NULL. */
  struct gpufi_h5_driver_file *file;
  const atomic_bool *stop; /* once it is true, writing fails with GPUF_ERR_STATE; may be NULL */
  /* What is to be written goes there instead of to HDF5, which is not entered; may be NULL. */
  struct gpufi_h5_outgoing *outgoing;
} gpufi_h5_context;

/* Let the calling thread's calls have a context, which stays the caller's, until this is called
 * with NULL. */
void gpufi_h5_context_set(const gpufi_h5_context *context);

/* Used only by the thread that made the public call, which alone calls HDF5. "Entered" means that
 * it holds the caller's lock; functions that say so are called between enter and leave. */
typedef struct gpufi_h5_session {
  gpufi_h5_api *api;
  const gpufi_h5_context *context; /* the thread's, or NULL */
  gpuf_h5_options options;         /* a copy; the defaults where the caller gave none */
  gpufi_h5_file file;              /* what a refusal is charged to; not known before
                                      gpufi_h5_use_file */
  bool uses_chunk_cache;           /* HDF5 was asked for elements or chunks: a write that fails may
                                      lose others, which it held in memory */
  bool defers; /* chunks that are put need not be written before gpufi_h5_chunks_settle */
  bool entered;
  /* The library's automatic error printing, off while entered. */
  bool printing_saved;
  H5E_auto2_t print;
  void *print_arg;
} gpufi_h5_session;

/* Check the options, and bind the library if none is bound yet, under the caller's lock. Nothing
 * needs to be released. */
gpuf_status gpufi_h5_session_init(gpufi_h5_session *session, const gpuf_h5_options *options,
                                  gpuf_error *err);

/* How many threads may work for the call beside its own: as many as the options say, else one for
 * each core, but at most 16. */
int32_t gpufi_h5_session_thread_count(const gpufi_h5_session *session);

/* Take and release the caller's lock. Entering twice is entering once, and leaving without having
 * entered does nothing. */
void gpufi_h5_enter(gpufi_h5_session *session);
void gpufi_h5_leave(gpufi_h5_session *session);

/* From here on the call deals with the file of `id`, an open identifier. Entered. */
void gpufi_h5_use_file(gpufi_h5_session *session, hid_t id);

/* Fill `err` with the text and the innermost messages of HDF5's error stack, which is cleared, and
 * return GPUF_ERR_HDF5, or GPUF_ERR_NO_MEMORY where HDF5 lacked memory. native_code is the errno of
 * the system call that failed, if HDF5 names one.
 * What the system refused is remembered (failures.h). Entered, before any other HDF5 function. */
gpuf_status gpufi_h5_fail(gpufi_h5_session *session, gpuf_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same after a failure that may be an answer, as that of looking for what is not there: GPUF_OK
 * unless the system refused something. Entered. */
gpuf_status gpufi_h5_fail_if_refused(gpufi_h5_session *session, gpuf_error *err, const char *format,
                                     ...) __attribute__((format(printf, 3, 4)));

/* Clear HDF5's error stack, after a failure that is not one of the call's; what the system refused
 * is remembered all the same. Entered. */
void gpufi_h5_discard_errors(gpufi_h5_session *session);

/* Whether HDF5 can still make a file, which it does in memory alone. A release that lacked memory
 * once may fail at all files from then on, whole ones too, until the process ends. Entered. */
bool gpufi_h5_works(gpufi_h5_session *session);

/* Close an identifier of any kind; a negative one is ignored. Entered. */
void gpufi_h5_close(gpufi_h5_session *session, hid_t id);

#endif
