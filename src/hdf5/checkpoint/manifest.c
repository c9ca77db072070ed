#include "hdf5/checkpoint/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define FORMAT_VERSION 1
#define FIRST_LINE "gpufetch checkpoint "
#define WORD_NBYTES 32
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

static void print_tensor(FILE *out, const gpufi_checkpoint_tensor *t) {
  put(out, "tensor %zu %s %s %d", strlen(t->name), t->name, gpuf_dtype_name(t->tensor.dtype),
      (int)t->tensor.ndim);
  for (int32_t axis = 0; axis < t->tensor.ndim; axis++) {
    put(out, " %" PRId64, t->tensor.shape[axis]);
  }
  put(out, " %" PRId64 " %" PRIu64 " %016" PRIx64 "\n", t->digest.chunk_count,
      t->digest.stored_nbytes, t->digest.sum);
}

gpuf_status gpufi_checkpoint_manifest_format(const gpufi_checkpoint_contents *contents, char **text,
                                             size_t *nbytes, gpuf_error *err) {
  bool is_written;
  FILE *const out = open_memstream(text, nbytes);
  if (out) {
    put(out, FIRST_LINE "%d\nlibrary %s\nstep %" PRId64 "\n", FORMAT_VERSION, gpuf_version(),
        contents->step);
    for (size_t i = 0; i < contents->value_count; i++) {
      print_value(out, &contents->values[i]);
    }
    for (size_t i = 0; i < contents->tensor_count; i++) {
      print_tensor(out, &contents->tensors[i]);
    }
    is_written = fflush(out) == 0 && !ferror(out);
    if (is_written) {
      put(out, "end %016" PRIx64 "\n", gpufi_h5_hash(*text, *nbytes));
    }
    is_written = fclose(out) == 0 && is_written;
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
static uint64_t take_bits(cursor *c) {
  char word[WORD_NBYTES];
  char *end = word;
  take_word(c, word, '\n');
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

static gpuf_status take_tensor(gpufi_checkpoint_contents *contents, cursor *c, const char *name,
                               gpuf_error *err) {
  static char no_data;
  int64_t shape[GPUF_NDIM_MAX];
  gpufi_h5_digest digest;
  gpuf_tensor tensor;
  const gpuf_dtype dtype = take_dtype(c);
  const int64_t ndim = take_count(c);
  c->is_good = c->is_good && ndim <= GPUF_NDIM_MAX;
  for (int64_t axis = 0; c->is_good && axis < ndim; axis++) {
    shape[axis] = take_int64(c, ' ');
  }
  digest.chunk_count = take_count(c);
  digest.stored_nbytes = (uint64_t)take_count(c);
  digest.sum = take_bits(c);
  if (!c->is_good) {
    return GPUF_OK;
  }
  gpuf_status status = gpuf_tensor_init(&tensor, &no_data, (gpuf_device){GPUF_DEVICE_CPU, 0}, dtype,
                                        (int32_t)ndim, shape, err);
  if (status == GPUF_OK) {
    tensor.data = NULL;
    status = gpufi_checkpoint_add_tensor(contents, name, &tensor, err);
  }
  if (status == GPUF_OK) {
    contents->tensors[contents->tensor_count - 1].digest = digest;
  }
  return status;
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
    bits = take_bits(c);
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
  if (strcmp(word, "tensor") == 0) {
    status = take_tensor(contents, c, name, err);
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
  if (c.is_good && version > FORMAT_VERSION) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "the checkpoint has format %" PRId64 ", and libgpufetch %s reads up to %d: "
                      "install a newer one",
                      version, gpuf_version(), FORMAT_VERSION);
  }
  if (!c.is_good || version != FORMAT_VERSION || !is_sealed(text, nbytes)) {
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
  return status == GPUF_OK && !c.is_good ? damaged(err)
         : status == GPUF_ERR_INVALID    ? damaged(err)
                                         : status;
}
