#include "hdf5/driver/deferred.h"

#include <stdlib.h>

/* A thread takes so much at a time: a chunk of many MiB is no work for one thread alone. */
#define PIECE_NBYTES ((size_t)1 << 20)

bool gpufi_h5_deferred_add(gpufi_h5_deferred *d, const gpufi_h5_write *write) {
  gpufi_h5_writes *const noted = &d->noted;
  if (noted->count == noted->capacity) {
    const size_t capacity = noted->capacity ? 2 * noted->capacity : 64;
    gpufi_h5_write *const grown = realloc(noted->all, capacity * sizeof(*grown));
    if (!grown) {
      return false;
    }
    noted->all = grown;
    noted->capacity = capacity;
  }
  noted->all[noted->count++] = *write;
  return true;
}

static bool overlaps(const gpufi_h5_writes *writes, uint64_t offset, size_t nbytes) {
  for (size_t i = 0; i < writes->count; i++) {
    const gpufi_h5_write *const w = &writes->all[i];
    if (offset < w->offset + w->nbytes && w->offset < offset + nbytes) {
      return true;
    }
  }
  return false;
}

bool gpufi_h5_deferred_overlaps(const gpufi_h5_deferred *d, uint64_t offset, size_t nbytes) {
  return overlaps(&d->noted, offset, nbytes) || overlaps(&d->under_way, offset, nbytes);
}

/* --- Threads ---------------------------------------------------------------------- */

static bool claim(gpufi_h5_deferred *d, gpufi_h5_write *piece) {
  pthread_mutex_lock(&d->claims);
  const bool is_one = d->code == 0 && d->index < d->under_way.count;
  if (is_one) {
    const gpufi_h5_write *const whole = &d->under_way.all[d->index];
    const size_t left = whole->nbytes - d->at;
    piece->offset = whole->offset + d->at;
    piece->bytes = (const char *)whole->bytes + d->at;
    piece->nbytes = left < PIECE_NBYTES ? left : PIECE_NBYTES;
    d->at += piece->nbytes;
    if (d->at == whole->nbytes) {
      d->index++;
      d->at = 0;
    }
  }
  pthread_mutex_unlock(&d->claims);
  return is_one;
}

/* Each thread does this. */
static void carry_out(void *arg) {
  gpufi_h5_deferred *const d = arg;
  gpufi_h5_write piece;
  while (claim(d, &piece)) {
    const int code = gpufi_h5_io_overwrite(d->target, piece.offset, piece.bytes, piece.nbytes);
    if (code != 0) {
      pthread_mutex_lock(&d->claims);
      if (d->code == 0) {
        d->code = code;
        d->offset = piece.offset;
      }
      pthread_mutex_unlock(&d->claims);
    }
  }
}

void gpufi_h5_deferred_begin(gpufi_h5_deferred *d, const gpufi_h5_target *to,
                             int32_t thread_count) {
  const gpufi_h5_writes emptied = d->under_way;
  d->under_way = d->noted;
  d->noted = emptied;
  d->noted.count = 0;
  d->target = to;
  d->index = d->at = 0;
  d->code = 0;
  if (!d->has_crew) {
    gpufi_crew_init(&d->crew, thread_count);
    d->has_crew = true;
  }
  d->job = (gpufi_job){.run = carry_out, .arg = d, .thread_max = thread_count};
  gpufi_crew_post(&d->crew, &d->job);
}

int gpufi_h5_deferred_end(gpufi_h5_deferred *d, uint64_t *offset) {
  gpufi_crew_finish(&d->crew, &d->job);
  *offset = d->offset;
  return d->code;
}

void gpufi_h5_deferred_dismiss(gpufi_h5_deferred *d) {
  if (d->has_crew) {
    gpufi_crew_fini(&d->crew);
    d->has_crew = false;
  }
}

void gpufi_h5_deferred_init(gpufi_h5_deferred *d) {
  pthread_mutex_init(&d->mutex, NULL);
  pthread_mutex_init(&d->claims, NULL);
}

void gpufi_h5_deferred_fini(gpufi_h5_deferred *d) {
  pthread_mutex_destroy(&d->mutex);
  pthread_mutex_destroy(&d->claims);
  free(d->noted.all);
  free(d->under_way.all);
}
