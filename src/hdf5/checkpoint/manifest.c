#include "hdf5/checkpoint/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hdf5/checkpoint/shard_files.h"

#define FORMAT_VERSION_ALONE 1
#define FORMAT_VERSION_SHARDED 2
#define FIRST_LINE "gpufetch checkpoint "
#define WORD_NBYTES 32
#define PARTS_MAX GPUFI_CHECKPOINT_PARTS_MAX
/* "end ", 16 digits and a newline. */
#define LAST_LINE_NBYTES ((size_t)21)

/* --- Writing ----------------------------------------------------------------- */

/* To the text in memory; whether all of it fit, ferror says in the end. */
__attribute__((format(printf, 2, 3))) static void put(FILE *out, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vfprintf(out, format, args);
  va_end(args);
}

static void print_value(FILE *out, const gpufi_checkpoint_value *value) {
  const size_t nbytes = strlen(value->name);
  uint64_t bits;
  switch (value->kind) {
  case GPUFI_CHECKPOINT_INT64:
    put(out, "int64 %zu %s %" PRId64 "\n", nbytes, value->name, value->int64);
    break;
  case GPUFI_CHECKPOINT_FLOAT64:
    memcpy(&bits, &value->float64, sizeof(bits));
    put(out, "float64 %zu %s %016" PRIx64 "\n", nbytes, value->name, bits);
    break;
  case GPUFI_CHECKPOINT_TEXT:
    put(out, "text %zu %s %zu %s\n", nbytes, value->name, strlen(value->text), value->text);
    break;
  }
}

static void print_numbers(FILE *out, int32_t ndim, const int64_t *numbers) {
  for (int32_t axis = 0; axis < ndim; axis++) {
    put(out, " %" PRId64, numbers[axis]);
  }
}

static void print_digest(FILE *out, const gpufi_h5_digest *digest) {
  put(out, " %" PRId64 " %" PRIu64 " %016" PRIx64 "\n", digest->chunk_count, digest->stored_nbytes,
      digest->sum);
}

static void print_tensor(FILE *out, const gpufi_checkpoint_tensor *t, bool is_sharded) {
  const int32_t ndim = t->tensor.ndim;
  put(out, "%s %zu %s %s %d", is_sharded ? "sharded" : "tensor", strlen(t->name), t->name,
      gpuf_dtype_name(t->tensor.dtype), (int)ndim);
  print_numbers(out, ndim, t->tensor.shape);
  if (!is_sharded) {
    print_digest(out, &t->digest);
    return;
  }
  put(out, " %zu\n", t->shard_part_count);
  for (size_t i = 0; t->shard_parts && i < t->shard_part_count; i++) {
    const gpufi_checkpoint_shard_part *const part = &t->shard_parts[i];
    put(out, "part %zu %s %zu", strlen(part->dataset), part->dataset, part->shard);
    print_numbers(out, ndim, part->start);
    print_numbers(out, ndim, part->shape);
    print_digest(out, &part->digest);
  }
}

static void print_shard(FILE *out, const char *word, const gpufi_checkpoint_shard *shard) {
  put(out, "%s %zu %s %016" PRIx64 " %016" PRIx64 " %" PRIu64 " %016" PRIx64 "\n", word,
      strlen(shard->name), shard->name, shard->uuid[0], shard->uuid[1], shard->nbytes,
      shard->seal_sum);
}

gpuf_status gpufi_checkpoint_manifest_format(const gpufi_checkpoint_contents *contents, char **text,
                                             size_t *nbytes, gpuf_error *err) {
  bool is_written;
  FILE *const out = open_memstream(text, nbytes);
  if (out) {
    const bool is_alone = contents->shard_count == 0 && !contents->self.name;
    put(out, FIRST_LINE "%d\nlibrary %s\nstep %" PRId64 "\n",
        is_alone ? FORMAT_VERSION_ALONE : FORMAT_VERSION_SHARDED, gpuf_version(), contents->step);
    if (contents->self.name) {
      print_shard(out, "self", &contents->self);
    }
    for (size_t i = 0; i < contents->shard_count; i++) {
      print_shard(out, "shard", &contents->shards[i]);
    }
    for (size_t i = 0; i < contents->value_count; i++) {
      print_value(out, &contents->values[i]);
    }
    for (size_t i = 0; i < contents->tensor_count; i++) {
      const gpufi_checkpoint_tensor *const t = &contents->tensors[i];
      print_tensor(out, t, t->shard_parts || contents->is_share);
    }
    is_written = fflush(out) == 0 && !ferror(out);
    if (is_written) {
      put(out, "end %016" PRIx64 "\n", gpufi_h5_hash(*text, *nbytes));
    }
    is_written = fclose(out) == 0 && is_written && *text; /* without memory, fclose may return 0 */
    if (is_written) {
      return GPUF_OK;
    }
    free(*text);
  }
  *text = NULL;
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for the manifest of %zu tensors",
                    contents->tensor_count);
}

/* --- Reading ----------------------------------------------------------------- */

/* The text that is left. Once something is not as it should be, `is_good` is false, and nothing
 * more is taken. */
typedef struct cursor {
  const char *at;
  const char *end;
  bool is_good;
} cursor;

static void expect(cursor *c, char wanted) {
  c->is_good = c->is_good && c->at < c->end && *c->at == wanted;
  c->at += c->is_good;
}

/* A word of up to WORD_NBYTES - 1 printable bytes, and the space or newline behind it. */
static void take_word(cursor *c, char *word, char behind) {
  size_t nbytes = 0;
  while (c->is_good && c->at < c->end && nbytes < WORD_NBYTES - 1 && *c->at > ' ' && *c->at < 127) {
    word[nbytes++] = *c->at++;
  }
  word[nbytes] = '\0';
  c->is_good = c->is_good && nbytes > 0;
  expect(c, behind);
}

static int64_t take_int64(cursor *c, char behind) {
  char word[WORD_NBYTES];
  char *end = word;
  take_word(c, word, behind);
  errno = 0;
  const long long value = strtoll(word, &end, 10);
  c->is_good = c->is_good && *end == '\0' && errno == 0;
  return c->is_good ? value : 0;
}

/* A number that is not negative. */
static int64_t take_count(cursor *c) {
  const int64_t count = take_int64(c, ' ');
  c->is_good = c->is_good && count >= 0;
  return count;
}

/* 16 hexadecimal digits. */
static uint64_t take_bits(cursor *c, char behind) {
  char word[WORD_NBYTES];
  char *end = word;
  take_word(c, word, behind);
  const uint64_t bits = strtoull(word, &end, 16);
  c->is_good = c->is_good && *end == '\0' && end == word + 16;
  return bits;
}

/* A number of bytes, a space, and so many of them, which contain no NUL, as a copy that the caller
 * frees. NULL where the text is not good, or where there is no memory, which *is_short says. */
static char *take_text(cursor *c, char behind, bool *is_short) {
  const int64_t nbytes = take_count(c);
  c->is_good = c->is_good && nbytes <= c->end - c->at && !memchr(c->at, '\0', (size_t)nbytes);
  if (!c->is_good) {
    return NULL;
  }
  char *const copy = malloc((size_t)nbytes + 1);
  if (!copy) {
    *is_short = true;
    c->is_good = false;
    return NULL;
  }
  memcpy(copy, c->at, (size_t)nbytes);
  copy[nbytes] = '\0';
  c->at += nbytes;
  expect(c, behind);
  return copy;
}

static gpuf_dtype take_dtype(cursor *c) {
  char word[WORD_NBYTES];
  take_word(c, word, ' ');
  for (int dtype = 1; dtype <= GPUF_DTYPE_MAX; dtype++) {
    if (strcmp(word, gpuf_dtype_name((gpuf_dtype)dtype)) == 0) {
      return (gpuf_dtype)dtype;
    }
  }
  c->is_good = false;
  return GPUF_DTYPE_BOOL;
}

static void take_numbers(cursor *c, int32_t ndim, int64_t *numbers) {
  for (int32_t axis = 0; c->is_good && axis < ndim; axis++) {
    numbers[axis] = take_int64(c, ' ');
  }
}

static gpufi_h5_digest take_digest(cursor *c) {
  gpufi_h5_digest digest;
  digest.chunk_count = take_count(c);
  digest.stored_nbytes = (uint64_t)take_count(c);
  digest.sum = take_bits(c, '\n');
  return digest;
}

/* The line of a part, from its first word. */
static gpuf_status take_part(gpufi_checkpoint_tensor *t, cursor *c, bool *is_short,
                             gpuf_error *err) {
  gpufi_checkpoint_shard_part part = {.dataset = NULL};
  char word[WORD_NBYTES];
  gpuf_status status = GPUF_OK;
  take_word(c, word, ' ');
  c->is_good = c->is_good && strcmp(word, "part") == 0;
  part.dataset = c->is_good ? take_text(c, ' ', is_short) : NULL;
  part.shard = (size_t)take_count(c);
  take_numbers(c, t->tensor.ndim, part.start);
  take_numbers(c, t->tensor.ndim, part.shape);
  part.digest = take_digest(c);
  if (c->is_good) {
    status = gpufi_checkpoint_add_shard_part(t, &part, err);
  }
  free(part.dataset);
  return status;
}

/* What follows the rank and the shape of a tensor. */
static gpuf_status take_places(gpufi_checkpoint_tensor *t, cursor *c, bool is_sharded,
                               int64_t count_min, bool *is_short, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (!is_sharded) {
    t->digest = take_digest(c);
    return GPUF_OK;
  }
  const int64_t count = take_int64(c, '\n');
  c->is_good = c->is_good && count >= count_min && count <= PARTS_MAX;
  for (int64_t i = 0; i < count && c->is_good && status == GPUF_OK; i++) {
    status = take_part(t, c, is_short, err);
  }
  return status;
}

static gpuf_status take_tensor(gpufi_checkpoint_contents *contents, cursor *c, const char *name,
                               bool is_sharded, bool *is_short, gpuf_error *err) {
  static char no_data;
  int64_t shape[GPUF_NDIM_MAX];
  gpuf_tensor tensor;
  const gpuf_dtype dtype = take_dtype(c);
  const int64_t ndim = take_count(c);
  c->is_good = c->is_good && ndim <= GPUF_NDIM_MAX;
  take_numbers(c, (int32_t)ndim, shape);
  if (!c->is_good) {
    return GPUF_OK;
  }
  gpuf_status status = gpuf_tensor_init(&tensor, &no_data, (gpuf_device){GPUF_DEVICE_CPU, 0}, dtype,
                                        (int32_t)ndim, shape, err);
  if (status == GPUF_OK) {
    tensor.data = NULL;
    status = gpufi_checkpoint_add_tensor(contents, name, &tensor, err);
  }
  return status == GPUF_OK ? take_places(&contents->tensors[contents->tensor_count - 1], c,
                                         is_sharded, !contents->is_share, is_short, err)
                           : status;
}

/* A shard, or, in its own manifest, the one that it is. */
static gpuf_status take_shard(gpufi_checkpoint_contents *contents, cursor *c, char *name,
                              bool is_self, gpuf_error *err) {
  gpufi_checkpoint_shard shard = {.name = name};
  shard.uuid[0] = take_bits(c, ' ');
  shard.uuid[1] = take_bits(c, ' ');
  shard.nbytes = (uint64_t)take_count(c);
  shard.seal_sum = take_bits(c, '\n');
  c->is_good = c->is_good && !strchr(name, '/') &&
               contents->shard_count < GPUFI_CHECKPOINT_ALL_SHARDS_MAX &&
               !(is_self && contents->self.name);
  if (!c->is_good || !is_self) {
    return c->is_good ? gpufi_checkpoint_add_shard(contents, &shard, err) : GPUF_OK;
  }
  contents->self = shard;
  contents->self.name = strdup(name);
  return contents->self.name
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to note '%s'", name);
}

static gpuf_status take_value(gpufi_checkpoint_contents *contents, cursor *c, char *name,
                              gpufi_checkpoint_kind kind, bool *is_short, gpuf_error *err) {
  gpufi_checkpoint_value value = {.name = name, .kind = kind};
  uint64_t bits;
  switch (kind) {
  case GPUFI_CHECKPOINT_INT64:
    value.int64 = take_int64(c, '\n');
    break;
  case GPUFI_CHECKPOINT_FLOAT64:
    bits = take_bits(c, '\n');
    memcpy(&value.float64, &bits, sizeof(bits));
    break;
  case GPUFI_CHECKPOINT_TEXT:
    value.text = take_text(c, '\n', is_short);
    break;
  }
  const gpuf_status status =
      c->is_good ? gpufi_checkpoint_add_value(contents, &value, err) : GPUF_OK;
  free(value.text);
  return status;
}

/* A line other than the first three and the last. */
static gpuf_status take_line(gpufi_checkpoint_contents *contents, cursor *c, bool *is_short,
                             gpuf_error *err) {
  static const char *const kinds[] = {"int64", "float64", "text"};
  char word[WORD_NBYTES];
  gpuf_status status = GPUF_OK;
  take_word(c, word, ' ');
  char *const name = c->is_good ? take_text(c, ' ', is_short) : NULL;
  if (!name) {
    return GPUF_OK;
  }
  const bool is_sharded = strcmp(word, "sharded") == 0;
  const bool is_self = strcmp(word, "self") == 0;
  if (is_sharded || (strcmp(word, "tensor") == 0 && !contents->is_share)) {
    status = take_tensor(contents, c, name, is_sharded, is_short, err);
  } else if (is_self || strcmp(word, "shard") == 0) {
    status = take_shard(contents, c, name, is_self, err);
  } else {
    int kind = 0;
    while (kind < 3 && strcmp(word, kinds[kind]) != 0) {
      kind++;
    }
    c->is_good = c->is_good && kind < 3;
    if (c->is_good) {
      status = take_value(contents, c, name, (gpufi_checkpoint_kind)kind, is_short, err);
    }
  }
  free(name);
  return status;
}

/* Whether the text ends with the checksum of all before. */
static bool is_sealed(const char *text, size_t nbytes) {
  char last[LAST_LINE_NBYTES + 1];
  if (nbytes <= LAST_LINE_NBYTES) {
    return false;
  }
  snprintf(last, sizeof(last), "end %016" PRIx64 "\n",
           gpufi_h5_hash(text, nbytes - LAST_LINE_NBYTES));
  return memcmp(last, text + nbytes - LAST_LINE_NBYTES, LAST_LINE_NBYTES) == 0;
}

static gpuf_status damaged(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                    "dataset '" GPUFI_CHECKPOINT_MANIFEST "' is no manifest of a checkpoint, or it "
                    "is damaged");
}

gpuf_status gpufi_checkpoint_manifest_parse(gpufi_checkpoint_contents *contents, const char *text,
                                            size_t nbytes, gpuf_error *err) {
  char word[WORD_NBYTES];
  bool is_short = false;
  gpuf_status status = GPUF_OK;
  const size_t first_nbytes = sizeof(FIRST_LINE) - 1;
  if (nbytes < first_nbytes || memcmp(text, FIRST_LINE, first_nbytes) != 0) {
    return damaged(err);
  }
  cursor c = {text + first_nbytes, text + nbytes, true};
  const int64_t version = take_int64(&c, '\n');
  if (c.is_good && version > FORMAT_VERSION_SHARDED) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "the checkpoint has format %" PRId64 ", and libgpufetch %s reads up to %d: "
                      "install a newer one",
                      version, gpuf_version(), FORMAT_VERSION_SHARDED);
  }
  if (!c.is_good || version < FORMAT_VERSION_ALONE || !is_sealed(text, nbytes)) {
    return damaged(err);
  }
  c.end -= LAST_LINE_NBYTES;
  take_word(&c, word, ' ');
  c.is_good = c.is_good && strcmp(word, "library") == 0;
  take_word(&c, word, '\n');
  take_word(&c, word, ' ');
  c.is_good = c.is_good && strcmp(word, "step") == 0;
  contents->step = take_int64(&c, '\n');
  while (status == GPUF_OK && c.is_good && c.at < c.end) {
    status = take_line(contents, &c, &is_short, err);
  }
  if (is_short) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for the checkpoint's manifest");
  }
  const bool is_alone = contents->shard_count == 0 && !contents->self.name;
  c.is_good =
      c.is_good && is_alone == (version == FORMAT_VERSION_ALONE) &&
      (status != GPUF_OK || contents->is_share || gpufi_checkpoint_shard_parts_fit(contents));
  return status == GPUF_OK && !c.is_good ? damaged(err)
         : status == GPUF_ERR_INVALID    ? damaged(err)
                                         : status;
}
