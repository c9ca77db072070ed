#include "hdf5/checkpoint/ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/system.h"
#include "hdf5/checkpoint/folder.h"
#include "hdf5/digest.h"

/* The calls of agree that this thread is in. */
typedef struct agreement {
  const gpufi_checkpoint_ranks *ranks;
  const struct agreement *outer;
} agreement;

static _Thread_local const agreement *innermost;

gpuf_status gpufi_checkpoint_check_outside(const gpufi_checkpoint_ranks *ranks, gpuf_error *err) {
  const agreement *a = innermost;
  while (a && a->ranks != ranks) {
    a = a->outer;
  }
  return !a ? GPUF_OK
            : gpufi_fail(err, GPUF_ERR_STATE, 0,
                         "options.agree calls the checkpoint that it agrees for, and would wait "
                         "for itself: let it give the minimum over the ranks, and nothing else");
}

int64_t gpufi_checkpoint_agree(gpufi_checkpoint_ranks *ranks, int64_t value) {
  const agreement own = {ranks, innermost};
  if (ranks->count <= 1) {
    return value;
  }
  innermost = &own;
  const int64_t least = ranks->agree(ranks->arg, ranks->is_broken ? -1 : value);
  innermost = own.outer;
  if (least < 0 || least > value) { /* the minimum of other values is of another call */
    ranks->is_broken = true;
  }
  return ranks->is_broken ? -1 : least;
}

int64_t gpufi_checkpoint_agree_on_failed(gpufi_checkpoint_ranks *ranks, bool has_failed) {
  return gpufi_checkpoint_agree(ranks, has_failed ? ranks->rank : INT64_MAX);
}

gpuf_status gpufi_checkpoint_fail_to_agree(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "the ranks could not agree: options.agree gave a negative number, as where a "
                    "rank has gone, or one above the rank's own, here or on another rank before: "
                    "end the others, and start again");
}

/* --- Opening ----------------------------------------------------------------- */

/* A number that two ranks have in common where their options are alike; below 2^62. */
static int64_t sum_options(const gpuf_checkpoint_options *o) {
  char text[400];
  const int nbytes = snprintf(
      text, sizeof(text), "%d %d %zu %d %d %d %d %.*s", (int)o->rank_count, (int)o->keep_count,
      o->shard_count, o->replace, o->skip_if_busy, o->unsynced, o->uncompressed,
      (int)GPUFI_CHECKPOINT_PREFIX_NBYTES_MAX + 1, o->prefix ? o->prefix : "");
  return (int64_t)(gpufi_h5_hash(text, (size_t)nbytes) >> 2);
}

/* The ranks fail together: with `status`, this one's own failure, or since another one has. GPUF_OK
 * where none has. */
static gpuf_status fail_with_others(gpufi_checkpoint_ranks *ranks, const char *what,
                                    gpuf_status status, gpuf_error *err) {
  const int64_t failed = gpufi_checkpoint_agree_on_failed(ranks, status != GPUF_OK);
  if (status != GPUF_OK || failed == INT64_MAX) {
    return status;
  }
  return failed < 0
             ? gpufi_checkpoint_fail_to_agree(err)
             : gpufi_fail(err, GPUF_ERR_STATE, 0,
                          "rank %" PRId64 " could not %s: its own error says why", failed, what);
}

gpuf_status gpufi_checkpoint_agree_to_open(gpufi_checkpoint_ranks *ranks,
                                           const gpuf_checkpoint_options *options,
                                           gpuf_status status, gpuf_error *err) {
  const int64_t own = sum_options(options);
  const int64_t least = gpufi_checkpoint_agree(ranks, status == GPUF_OK ? own : INT64_MAX);
  const int64_t are_alike =
      least < 0 ? -1 : gpufi_checkpoint_agree(ranks, status == GPUF_OK && least == own);
  if (are_alike > 0) {
    return GPUF_OK;
  }
  if (are_alike < 0) {
    return status == GPUF_OK ? gpufi_checkpoint_fail_to_agree(err) : status;
  }
  status = fail_with_others(ranks, "open its writer", status, err);
  return status != GPUF_OK ? status
                           : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                                        "the options of the ranks differ: rank_count, prefix, "
                                        "shard_count, keep_count, replace, skip_if_busy, "
                                        "unsynced and uncompressed must be the same on all of "
                                        "them");
}

/* --- Beginning --------------------------------------------------------------- */

/* Rank 0's is the one that all have; 0: there is none. */
static int64_t new_set(const gpufi_checkpoint_ranks *ranks, gpuf_status *status, gpuf_error *err) {
  uint64_t number = 0;
  if (ranks->rank > 0 || ranks->count <= 1) {
    return INT64_MAX;
  }
  if (!gpufi_random_bytes(&number, sizeof(number))) {
    const int code = errno;
    *status = *status != GPUF_OK
                  ? *status
                  : gpufi_fail(err, GPUF_ERR_IO, code, "getrandom for the shards' names: %s",
                               strerror(code));
    return 0;
  }
  return (int64_t)(number >> 2) + 1;
}

gpuf_status gpufi_checkpoint_agree_to_begin(gpufi_checkpoint_ranks *ranks, int64_t step,
                                            gpuf_status status, gpuf_error *err) {
  const int64_t own = new_set(ranks, &status, err);
  if (ranks->count <= 1) {
    return status;
  }
  const int64_t least = gpufi_checkpoint_agree(ranks, status == GPUF_OK ? step : INT64_MAX);
  const bool is_same = status == GPUF_OK && least == step;
  const int64_t set = least < 0 ? -1 : gpufi_checkpoint_agree(ranks, is_same ? own : 0);
  if (set > 0) {
    ranks->set = (uint64_t)set;
    ranks->is_open = true;
    return GPUF_OK;
  }
  if (set < 0) {
    return status == GPUF_OK ? gpufi_checkpoint_fail_to_agree(err) : status;
  }
  status = fail_with_others(ranks, "begin its checkpoint", status, err);
  return status != GPUF_OK
             ? status
             : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "this rank begins step %" PRId64 ", and the ranks begin different steps, "
                          "of which %" PRId64 " is the lowest: begin the same one on all",
                          step, least);
}
