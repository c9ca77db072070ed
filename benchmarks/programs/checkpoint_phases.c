#include "checkpoint_phases.h"

#include "base/clock.h"
#include "hdf5/batches.h"
#include "hdf5/checkpoint/expired.h"
#include "hdf5/checkpoint/file.h"
#include "hdf5/checkpoint/seal.h"
#include "hdf5/checkpoint/verify.h"
#include "hdf5/chunk.h"
#include "hdf5/direct.h"

const char *const phase_names[PHASE_COUNT] = {"take",   "close",  "seal",   "publish",
                                              "prune",  "check",  "verify", "places",
                                              "memory", "device", "put",    "write"};

static int64_t spent_ns[PHASE_COUNT]; /* atomic */

void phases_take(double seconds[PHASE_COUNT]) {
  for (int i = 0; i < PHASE_COUNT; i++) {
    seconds[i] =
        (double)__atomic_exchange_n(&spent_ns[i], 0, __ATOMIC_RELAXED) / (double)GPUFI_NS_PER_S;
  }
}

/* Time a function of the library that returns `type`. */
#define TIMED(type, name, phase, parameters, arguments)                                            \
  type __real_##name parameters;                                                                   \
  type __wrap_##name parameters;                                                                   \
  type __wrap_##name parameters {                                                                  \
    const int64_t begin_ns = gpufi_clock_ns();                                                     \
    const type result = __real_##name arguments;                                                   \
    __atomic_add_fetch(&spent_ns[phase], gpufi_clock_ns() - begin_ns, __ATOMIC_RELAXED);           \
    return result;                                                                                 \
  }

TIMED(bool, gpufi_checkpoint_recycle, PHASE_TAKE,
      (const gpufi_checkpoint_folder *folder, const gpufi_checkpoint_keeping *keeping, int64_t step,
       bool syncs, gpufi_checkpoint_temporary *temporary),
      (folder, keeping, step, syncs, temporary))
TIMED(gpuf_status, gpufi_checkpoint_temporary_create, PHASE_TAKE,
      (const gpufi_checkpoint_folder *folder, int64_t step, gpufi_checkpoint_temporary *temporary,
       gpuf_error *err),
      (folder, step, temporary, err))
TIMED(gpuf_status, gpufi_checkpoint_file_finish, PHASE_CLOSE,
      (gpufi_checkpoint_file * file, gpufi_h5_session *session, const char *path,
       gpufi_h5_extents *elements, gpuf_error *err),
      (file, session, path, elements, err))
TIMED(gpuf_status, gpufi_checkpoint_seal, PHASE_SEAL,
      (int fd, const char *path, const gpufi_h5_extents *elements, gpuf_error *err),
      (fd, path, elements, err))
TIMED(gpuf_status, gpufi_checkpoint_publish, PHASE_PUBLISH,
      (const gpufi_checkpoint_folder *folder, int64_t step,
       const gpufi_checkpoint_temporary *temporary, bool replaces, bool syncs, gpuf_error *err),
      (folder, step, temporary, replaces, syncs, err))
TIMED(gpuf_status, gpufi_checkpoint_prune, PHASE_PRUNE,
      (const gpufi_checkpoint_folder *folder, const gpufi_checkpoint_keeping *keeping,
       gpuf_error *err),
      (folder, keeping, err))
TIMED(gpuf_status, gpufi_checkpoint_check_file, PHASE_CHECK,
      (const char *path, gpufi_checkpoint_seal_mark *mark, gpuf_error *err), (path, mark, err))
TIMED(gpuf_status, gpufi_checkpoint_verify, PHASE_VERIFY,
      (gpufi_h5_session * session, hid_t file, const gpufi_checkpoint_contents *contents,
       gpuf_error *err),
      (session, file, contents, err))

TIMED(gpuf_status, gpufi_h5_batches_init, PHASE_MEMORY,
      (gpufi_h5_batches * all, gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
       gpuf_error *err),
      (all, session, transfer, err))
TIMED(gpuf_status, gpufi_h5_batch_wait, PHASE_DEVICE, (const gpufi_h5_batch *b, gpuf_error *err),
      (b, err))
TIMED(gpuf_status, gpufi_h5_batch_send, PHASE_DEVICE, (const gpufi_h5_batch *b, gpuf_error *err),
      (b, err))
TIMED(gpuf_status, gpufi_h5_chunk_put, PHASE_PUT,
      (gpufi_h5_session * session, const gpufi_h5_transfer *transfer, const gpufi_h5_chunk *chunk,
       gpuf_error *err),
      (session, transfer, chunk, err))
TIMED(gpuf_status, gpufi_h5_chunks_begin, PHASE_WRITE,
      (const gpufi_h5_session *session, gpuf_status status, gpuf_error *err),
      (session, status, err))

void __real_gpufi_h5_direct_init(gpufi_h5_direct *direct, gpufi_h5_session *session,
                                 const gpufi_h5_dataset *dataset, const gpufi_h5_grid *grid);
void __wrap_gpufi_h5_direct_init(gpufi_h5_direct *direct, gpufi_h5_session *session,
                                 const gpufi_h5_dataset *dataset, const gpufi_h5_grid *grid);
void __wrap_gpufi_h5_direct_init(gpufi_h5_direct *direct, gpufi_h5_session *session,
                                 const gpufi_h5_dataset *dataset, const gpufi_h5_grid *grid) {
  const int64_t begin_ns = gpufi_clock_ns();
  __real_gpufi_h5_direct_init(direct, session, dataset, grid);
  __atomic_add_fetch(&spent_ns[PHASE_PLACES], gpufi_clock_ns() - begin_ns, __ATOMIC_RELAXED);
}
