/* What an asynchronous write has copied and encoded, on its way from the thread that does so, the
 * producer, to the thread that hands it to HDF5. */
#ifndef GPUFI_HDF5_OUTGOING_H
#define GPUFI_HDF5_OUTGOING_H

#include <pthread.h>
#include <stdbool.h>

#include "hdf5/grid.h"

typedef struct gpufi_h5_item {
  struct gpufi_h5_item *next;
  int64_t chunk_index; /* in the grid of the write; -1: the elements of `box`, in C order */
  gpufi_h5_box box;
  size_t nbytes;
  _Alignas(16) unsigned char bytes[];
} gpufi_h5_item;

typedef struct gpufi_h5_outgoing {
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t changed;
  size_t max_nbytes;            /* of items, or one item where that is more; constant */
  gpufi_h5_item *first, **last; /* that were put and not taken */
  size_t count;                 /* of them */
  size_t nbytes;                /* of all items that were not dropped */
  bool is_ended;                /* the producer is done, with `status` */
  bool is_stopped;              /* nobody takes items any more */
  gpuf_status status;
  gpuf_error error;
} gpufi_h5_outgoing;

void gpufi_h5_outgoing_init(gpufi_h5_outgoing *outgoing, size_t max_nbytes);
/* The producer has ended, or there was none. */
void gpufi_h5_outgoing_fini(gpufi_h5_outgoing *outgoing);

/* --- For the producer -------------------------------------------------------- */

/* Copy what is to be written, once there is memory for it. GPUF_ERR_STATE after
 * gpufi_h5_outgoing_stop. */
gpuf_status gpufi_h5_outgoing_put_chunk(gpufi_h5_outgoing *outgoing, int64_t index,
                                        const void *bytes, size_t nbytes, gpuf_error *err);
gpuf_status gpufi_h5_outgoing_put_box(gpufi_h5_outgoing *outgoing, const gpufi_h5_box *box,
                                      const void *bytes, size_t nbytes, gpuf_error *err);
/* All was put, or `status` and `error` say why not. */
void gpufi_h5_outgoing_end(gpufi_h5_outgoing *outgoing, gpuf_status status,
                           const gpuf_error *error);

/* --- For the thread that takes ----------------------------------------------- */

/* Take the next item; NULL where there are none, and will be none. GPUF_ERR_TIMEOUT at the deadline
 * (NULL: none); the producer's failure once its last item was taken. */
gpuf_status gpufi_h5_outgoing_take(gpufi_h5_outgoing *outgoing, const struct timespec *deadline,
                                   gpufi_h5_item **item, gpuf_error *err);
/* Free an item that was taken; NULL is allowed. */
void gpufi_h5_outgoing_drop(gpufi_h5_outgoing *outgoing, gpufi_h5_item *item);
/* How many items can be taken now. */
size_t gpufi_h5_outgoing_count(gpufi_h5_outgoing *outgoing);
/* Whether the producer has read all of the tensor, or has failed. */
bool gpufi_h5_outgoing_is_ended(gpufi_h5_outgoing *outgoing);
/* Let the producer end with its next item. */
void gpufi_h5_outgoing_stop(gpufi_h5_outgoing *outgoing);

#endif
