/* What belongs to a checkpoint: its tensors and values by name, in the order in which they were
 * added. Used by one thread at a time. */
#ifndef GPUFI_HDF5_CHECKPOINT_CONTENTS_H
#define GPUFI_HDF5_CHECKPOINT_CONTENTS_H

#include <gpufetch/checkpoint.h>

#include "hdf5/digest.h"

/* The dataset that says what belongs to the checkpoint. */
#define GPUFI_CHECKPOINT_MANIFEST "gpufetch_checkpoint"
#define GPUFI_CHECKPOINT_NAME_NBYTES_MAX ((size_t)1000)
/* The value that says which program wrote, and the longest one. */
#define GPUFI_CHECKPOINT_APPLICATION "gpufetch_application"
#define GPUFI_CHECKPOINT_APPLICATION_NBYTES_MAX ((size_t)255)

typedef enum gpufi_checkpoint_kind {
  GPUFI_CHECKPOINT_INT64,
  GPUFI_CHECKPOINT_FLOAT64,
  GPUFI_CHECKPOINT_TEXT,
} gpufi_checkpoint_kind;

typedef struct gpufi_checkpoint_value {
  char *name;
  gpufi_checkpoint_kind kind;
  int64_t int64;
  double float64;
  char *text;
} gpufi_checkpoint_value;

/* A box of a tensor, as the caller holds it. */
typedef struct gpufi_checkpoint_part {
  gpuf_tensor tensor;
  int64_t start[GPUF_NDIM_MAX];
} gpufi_checkpoint_part;

/* A part of a tensor as a shard holds it: a dataset of that shape in the shard's file. */
typedef struct gpufi_checkpoint_shard_part {
  char *dataset; /* its name there */
  size_t shard;
  int64_t start[GPUF_NDIM_MAX];
  int64_t shape[GPUF_NDIM_MAX];
  int64_t first_chunk;    /* of the tensor's grid; set for writing */
  gpufi_h5_digest digest; /* of what the shard holds of it */
} gpufi_checkpoint_shard_part;

/* A file that holds parts of tensors, or what a master says of one. */
typedef struct gpufi_checkpoint_shard {
  char *name;        /* of the file, in the master's folder */
  uint64_t uuid[2];  /* the first half is that of the whole set, and is in its files' names */
  uint64_t nbytes;   /* of the file; 0 in a shard's own manifest */
  uint64_t seal_sum; /* the checksum in its seal; 0 in a shard's own manifest */
} gpufi_checkpoint_shard;

/* A box of an array of all ranks: a tensor of its own where it is written. */
typedef struct gpufi_checkpoint_piece {
  char *array;   /* its name, which the first piece that a rank adds of it has, too */
  bool is_first; /* of those that this rank adds */
  int64_t shape[GPUF_NDIM_MAX]; /* of the array */
  int64_t start[GPUF_NDIM_MAX];
} gpufi_checkpoint_piece;

typedef struct gpufi_checkpoint_tensor {
  char *name; /* without a slash at its begin */
  /* Writing: the caller's tensor until the snapshot, and the snapshot's copy from then on. Reading,
   * and where there are parts until the snapshot: without data. */
  gpuf_tensor tensor;
  gpufi_checkpoint_part *parts; /* no two of which overlap; NULL: the tensor is the whole */
  size_t part_count;
  /* What shards hold, which is all of it; NULL: the file itself holds the tensor. */
  gpufi_checkpoint_shard_part *shard_parts;
  size_t shard_part_count;
  gpufi_h5_digest digest; /* of what the file itself holds of it */
  /* With ranks: what the tensor is of an array that all ranks hold; NULL: it is an array. */
  gpufi_checkpoint_piece *piece;
} gpufi_checkpoint_tensor;

/* A set of names by their hashes: datasets and the groups that they lie in. */
typedef struct gpufi_checkpoint_names {
  uint64_t *hashes; /* 0 = free; the lowest bit says that it is a group */
  size_t count;
  size_t capacity; /* a power of two, or 0 */
} gpufi_checkpoint_names;

/* Zeroed: empty. */
typedef struct gpufi_checkpoint_contents {
  int64_t step;
  gpufi_checkpoint_tensor *tensors;
  size_t tensor_count;
  gpufi_checkpoint_value *values;
  size_t value_count;
  gpufi_checkpoint_names tensor_names;
  gpufi_checkpoint_names value_names;
  gpufi_checkpoint_shard *shards; /* NULL: one file holds everything */
  size_t shard_count;
  gpufi_checkpoint_shard self; /* of a shard's own manifest: which one it is; else zeroed */
  /* Writing: the thread whose default stream tensors are on (gpufi_thread_number), or 0. */
  uint64_t stream_thread;
  bool is_share; /* what one rank says of its shards, which may not be all of a tensor */
  /* The tensors by the order in which they are written, of which a snapshot is taken in that order;
   * NULL: as they were added. */
  size_t *order;
} gpufi_checkpoint_contents;

/* Which tensor is the one at `position` of the snapshot. */
static inline size_t gpufi_checkpoint_tensor_at(const gpufi_checkpoint_contents *contents,
                                                size_t position) {
  return contents->order ? contents->order[position] : position;
}

/* Make it empty, and free what it holds. */
void gpufi_checkpoint_contents_clear(gpufi_checkpoint_contents *contents);

/* Add a tensor, whose descriptor has been checked. GPUF_ERR_INVALID, and nothing changes, for a
 * name that no dataset may have, that is there already, or that a group has. */
gpuf_status gpufi_checkpoint_add_tensor(gpufi_checkpoint_contents *contents, const char *name,
                                        const gpuf_tensor *tensor, gpuf_error *err);
/* Add a tensor without data, of another's dtype and number of axes: the whole of parts. `*added` is
 * valid until the next one is added. */
gpuf_status gpufi_checkpoint_add_whole(gpufi_checkpoint_contents *contents, const char *name,
                                       const gpuf_tensor *like, const int64_t *shape,
                                       gpufi_checkpoint_tensor **added, gpuf_error *err);
/* Add a part of a tensor, to those that have its name already: GPUF_ERR_INVALID, and nothing
 * changes, also where the part does not lie within the whole, overlaps another one, or where their
 * dtypes or the shapes of their wholes differ. */
gpuf_status gpufi_checkpoint_add_part(gpufi_checkpoint_contents *contents, const char *name,
                                      const gpuf_tensor *tensor, const gpuf_part *part,
                                      gpuf_error *err);
/* GPUF_ERR_INVALID for a part that does not lie within the whole. */
gpuf_status gpufi_checkpoint_check_part(const char *name, const gpuf_tensor *tensor,
                                        const gpuf_part *part, gpuf_error *err);
/* With ranks: add a part (NULL: all) of an array as a tensor of its own. GPUF_ERR_INVALID, and
 * nothing changes, as for the other two. */
gpuf_status gpufi_checkpoint_add_piece(gpufi_checkpoint_contents *contents, const char *name,
                                       const gpuf_tensor *tensor, const gpuf_part *part,
                                       gpuf_error *err);
/* GPUF_ERR_INVALID where the parts of a tensor leave gaps. */
gpuf_status gpufi_checkpoint_check_parts(const gpufi_checkpoint_contents *contents,
                                         gpuf_error *err);
/* Add a part that shard `part->shard` holds to a tensor. The name of its dataset is copied. */
gpuf_status gpufi_checkpoint_add_shard_part(gpufi_checkpoint_tensor *t,
                                            const gpufi_checkpoint_shard_part *part,
                                            gpuf_error *err);
/* Whether the shards' parts of each tensor lie in it, do not overlap, and are all of it, and are
 * held by shards that there are. */
bool gpufi_checkpoint_shard_parts_fit(const gpufi_checkpoint_contents *contents);
/* Whether a part lies in the tensor, and has elements; and whether two parts have some in common.
 */
bool gpufi_checkpoint_lies_in(const gpufi_checkpoint_shard_part *part, const gpuf_tensor *tensor);
bool gpufi_checkpoint_boxes_overlap(const gpufi_checkpoint_shard_part *a,
                                    const gpufi_checkpoint_shard_part *b, int32_t ndim);
int64_t gpufi_checkpoint_part_count(const gpufi_checkpoint_shard_part *part, int32_t ndim);
/* Add a shard, whose name is copied. */
gpuf_status gpufi_checkpoint_add_shard(gpufi_checkpoint_contents *contents,
                                       const gpufi_checkpoint_shard *shard, gpuf_error *err);
/* Add a value, whose name and text are copied. */
gpuf_status gpufi_checkpoint_add_value(gpufi_checkpoint_contents *contents,
                                       const gpufi_checkpoint_value *value, gpuf_error *err);

/* NULL where there is none of the name; a slash at its begin does not count. */
const gpufi_checkpoint_tensor *
gpufi_checkpoint_find_tensor(const gpufi_checkpoint_contents *contents, const char *name);
const gpufi_checkpoint_value *gpufi_checkpoint_find_value(const gpufi_checkpoint_contents *contents,
                                                          const char *name);

#endif
