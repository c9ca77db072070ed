/* The members of requests: which operation has which, and what each may hold. */
#include "internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef gpufi_comm_code parser(const json_t *value, gpufi_comm_request *request, gpuf_error *err);

bool gpufi_comm_name_valid(const char *name, size_t nbytes) {
  if (nbytes < 1 || nbytes > GPUFI_COMM_NAME_MAX_NBYTES) {
    return false;
  }
  for (size_t i = 0; i < nbytes; i++) {
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) {
      return false;
    }
  }
  return true;
}

/* --- Kinds of values ------------------------------------------------------------- */

/* An ASCII string of 1 to `max` printable characters. */
static bool is_plain(const json_t *value, size_t max) {
  const size_t nbytes = json_string_length(value);
  if (!json_is_string(value) || nbytes < 1 || nbytes > max) {
    return false;
  }
  for (const char *c = json_string_value(value); *c; c++) {
    if (*c < 0x20 || *c > 0x7e) {
      return false;
    }
  }
  return true;
}

static gpufi_comm_code parse_int(const char *what, const json_t *value, int64_t low, int64_t high,
                                 int64_t *result, gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  if (!json_is_integer(value) || json_integer_value(value) < low ||
      json_integer_value(value) > high) {
    return COMM_FAIL(err, COMM_BAD_REQUEST, "%s %s is not an integer from %" PRId64 " to %" PRId64,
                     what, gpufi_comm_show(value, shown), low, high);
  }
  *result = json_integer_value(value);
  return COMM_OK;
}

gpufi_comm_code gpufi_comm_token_parse(const char *what, const json_t *value,
                                       gpufi_comm_token *token, gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  if (json_is_integer(value)) {
    token->kind = COMM_TOKEN_INT;
    token->integer = json_integer_value(value);
  } else if (is_plain(value, COMM_TOKEN_MAX_NBYTES)) {
    token->kind = COMM_TOKEN_TEXT;
    COMM_SET_TEXT(token->text, json_string_value(value));
  } else {
    return COMM_FAIL(err, COMM_BAD_REQUEST,
                     "%s %s is neither a 64-bit integer nor an ASCII string of 1 to %d characters",
                     what, gpufi_comm_show(value, shown), COMM_TOKEN_MAX_NBYTES);
  }
  return COMM_OK;
}

/* --- Members --------------------------------------------------------------------- */

static gpufi_comm_code parse_name(const json_t *value, gpufi_comm_request *request,
                                  gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  if (!json_is_string(value) ||
      !gpufi_comm_name_valid(json_string_value(value), json_string_length(value))) {
    return COMM_FAIL(err, COMM_BAD_REQUEST,
                     "name %s is not a string of 1 to %d bytes without control characters",
                     gpufi_comm_show(value, shown), GPUFI_COMM_NAME_MAX_NBYTES);
  }
  COMM_SET_TEXT(request->name, json_string_value(value));
  return COMM_OK;
}

/* A bound of [start, stop, step]: an integer, or null for none. */
static bool parse_bound(const json_t *value, bool *given, int64_t *bound) {
  *given = json_is_integer(value);
  *bound = *given ? json_integer_value(value) : 0;
  return *given || json_is_null(value);
}

static gpufi_comm_code parse_slice(size_t axis, const json_t *item, gpufi_comm_slice *slice,
                                   gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  bool has_step = false;
  if (json_is_integer(item)) {
    *slice = (gpufi_comm_slice){.is_index = true, .start = json_integer_value(item)};
    return COMM_OK;
  }
  if (json_array_size(item) != 3 ||
      !parse_bound(json_array_get(item, 0), &slice->has_start, &slice->start) ||
      !parse_bound(json_array_get(item, 1), &slice->has_stop, &slice->stop) ||
      !parse_bound(json_array_get(item, 2), &has_step, &slice->step)) {
    return COMM_FAIL(err, COMM_BAD_SLICE,
                     "slices[%zu] %s is neither a 64-bit integer nor [start, stop, step] of 64-bit "
                     "integers and nulls",
                     axis, gpufi_comm_show(item, shown));
  }
  if (has_step && slice->step == 0) {
    return COMM_FAIL(err, COMM_BAD_SLICE, "slices[%zu] %s has step 0", axis,
                     gpufi_comm_show(item, shown));
  }
  slice->step = has_step ? slice->step : 1;
  return COMM_OK;
}

static gpufi_comm_code parse_slices(const json_t *value, gpufi_comm_request *request,
                                    gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  if (!json_is_array(value) || json_array_size(value) > GPUF_NDIM_MAX) {
    return COMM_FAIL(err, COMM_BAD_SLICE, "slices %s is not a list of at most %d items",
                     gpufi_comm_show(value, shown), GPUF_NDIM_MAX);
  }
  gpufi_comm_code code = COMM_OK;
  request->slice_count = (int32_t)json_array_size(value);
  for (size_t axis = 0; axis < json_array_size(value) && code == COMM_OK; axis++) {
    code = parse_slice(axis, json_array_get(value, axis), &request->slices[axis], err);
  }
  return code;
}

static gpufi_comm_code parse_at(const json_t *value, gpufi_comm_request *request, gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  const char *text = json_string_value(value);
  request->at_step = text && strcmp(text, "step") == 0;
  if (!request->at_step && !(text && strcmp(text, "live") == 0)) {
    return COMM_FAIL(err, COMM_BAD_REQUEST, "at %s is neither \"live\" nor \"step\"",
                     gpufi_comm_show(value, shown));
  }
  return COMM_OK;
}

static gpufi_comm_code parse_supersede(const json_t *value, gpufi_comm_request *request,
                                       gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  if (!is_plain(value, COMM_TOKEN_MAX_NBYTES)) {
    return COMM_FAIL(err, COMM_BAD_REQUEST,
                     "supersede %s is not an ASCII string of 1 to %d characters",
                     gpufi_comm_show(value, shown), COMM_TOKEN_MAX_NBYTES);
  }
  COMM_SET_TEXT(request->supersede, json_string_value(value));
  return COMM_OK;
}

static gpufi_comm_code parse_generation(const json_t *value, gpufi_comm_request *request,
                                        gpuf_error *err) {
  int64_t generation = 0;
  const gpufi_comm_code code = parse_int("generation", value, 1, INT64_MAX, &generation, err);
  request->generation = (uint64_t)generation;
  request->has_generation = true;
  return code;
}

static gpufi_comm_code parse_dtype(const json_t *value, gpufi_comm_request *request,
                                   gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  const char *text = json_string_value(value);
  for (int dtype = 1; text && dtype <= GPUF_DTYPE_MAX; dtype++) {
    if (strcmp(text, gpuf_dtype_name((gpuf_dtype)dtype)) == 0) {
      request->dtype = (gpuf_dtype)dtype;
      return COMM_OK;
    }
  }
  return COMM_FAIL(err, COMM_BAD_REQUEST,
                   "dtype %s is not the name of an element type, such as \"float32\"",
                   gpufi_comm_show(value, shown));
}

static gpufi_comm_code parse_fragment(const json_t *value, gpufi_comm_request *request,
                                      gpuf_error *err) {
  return parse_int("fragment", value, 0, INT64_MAX, &request->fragment, err);
}

static gpufi_comm_code parse_skip(const json_t *value, gpufi_comm_request *request,
                                  gpuf_error *err) {
  return parse_int("skip", value, 0, INT64_MAX, &request->skip, err);
}

static gpufi_comm_code parse_bins(const json_t *value, gpufi_comm_request *request,
                                  gpuf_error *err) {
  return parse_int("bins", value, 1, GPUF_HISTOGRAM_BINS_MAX, &request->bins, err);
}

static gpufi_comm_code parse_after(const json_t *value, gpufi_comm_request *request,
                                   gpuf_error *err) {
  request->has_after = true;
  return parse_int("after", value, INT64_MIN, INT64_MAX, &request->after, err);
}

static gpufi_comm_code parse_shape(const json_t *value, gpufi_comm_request *request,
                                   gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  if (!json_is_array(value) || json_array_size(value) > GPUF_NDIM_MAX) {
    return COMM_FAIL(err, COMM_BAD_REQUEST, "shape %s is not a list of at most %d lengths",
                     gpufi_comm_show(value, shown), GPUF_NDIM_MAX);
  }
  gpufi_comm_code code = COMM_OK;
  request->shape_count = (int32_t)json_array_size(value);
  for (size_t axis = 0; axis < json_array_size(value) && code == COMM_OK; axis++) {
    code = parse_int("a length in shape", json_array_get(value, axis), 1, INT64_MAX,
                     &request->shape[axis], err);
  }
  return code;
}

const char *const gpufi_comm_method_names[GPUF_OVERVIEW_FIRST + 1] = {
    [0] = "",
    [GPUF_OVERVIEW_MEAN] = "mean",
    [GPUF_OVERVIEW_RMS] = "rms",
    [GPUF_OVERVIEW_MIN] = "min",
    [GPUF_OVERVIEW_MAX] = "max",
    [GPUF_OVERVIEW_MINMAX] = "minmax",
    [GPUF_OVERVIEW_FIRST] = "first",
};

static gpufi_comm_code parse_method(const json_t *value, gpufi_comm_request *request,
                                    gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  const char *text = json_string_value(value);
  for (int method = GPUF_OVERVIEW_MEAN; text && method <= GPUF_OVERVIEW_FIRST; method++) {
    if (strcmp(text, gpufi_comm_method_names[method]) == 0) {
      request->method = (gpuf_overview_method)method;
      return COMM_OK;
    }
  }
  return COMM_FAIL(err, COMM_BAD_REQUEST,
                   "method %s is not one of mean, rms, min, max, minmax, first",
                   gpufi_comm_show(value, shown));
}

static gpufi_comm_code parse_range(const json_t *value, gpufi_comm_request *request,
                                   gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  request->has_range = true;
  for (size_t i = 0; i < 2; i++) {
    const json_t *limit = json_array_get(value, i);
    if (json_array_size(value) != 2 || !json_is_number(limit)) {
      return COMM_FAIL(err, COMM_BAD_REQUEST, "range %s is not [low, high], two numbers",
                       gpufi_comm_show(value, shown));
    }
    request->range[i] = json_number_value(limit);
  }
  return COMM_OK;
}

static gpufi_comm_code parse_target(const json_t *value, gpufi_comm_request *request,
                                    gpuf_error *err) {
  return gpufi_comm_token_parse("request", value, &request->target, err);
}

/* --- The table ------------------------------------------------------------------- */

#define OP(op) (1u << COMM_OP_##op)
#define READS (OP(READ) | OP(OVERVIEW) | OP(STATS) | OP(HISTOGRAM))

typedef struct member_row {
  const char *name;
  parser *parse;
  unsigned ops; /* bits of the operations that have it */
} member_row;

static const member_row members[] = {
    {"name", parse_name, READS | OP(SHARE) | OP(UNSHARE)},
    {"slices", parse_slices, READS},
    {"at", parse_at, READS},
    {"supersede", parse_supersede, READS},
    {"generation", parse_generation, READS | OP(SHARE)},
    {"dtype", parse_dtype, OP(READ)},
    {"fragment", parse_fragment, OP(READ)},
    {"shape", parse_shape, OP(OVERVIEW)},
    {"method", parse_method, OP(OVERVIEW)},
    {"bins", parse_bins, OP(HISTOGRAM)},
    {"range", parse_range, OP(HISTOGRAM)},
    {"skip", parse_skip, OP(LIST)},
    {"after", parse_after, OP(SUBSCRIBE)},
    {"request", parse_target, OP(CANCEL)},
};

bool gpufi_comm_member_parse(const char *key, const json_t *value, gpufi_comm_request *request,
                             gpufi_comm_code *code, gpuf_error *err) {
  for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
    if (strcmp(key, members[i].name) == 0 && (members[i].ops & 1u << request->op)) {
      *code = members[i].parse(value, request, err);
      return true;
    }
  }
  return false;
}

gpufi_comm_code gpufi_comm_members_check(const gpufi_comm_request *request, gpuf_error *err) {
  const char *op = gpufi_comm_op_names[request->op];
  const bool has_name = (READS | OP(SHARE) | OP(UNSHARE)) & 1u << request->op;
  if (has_name && request->name[0] == '\0') {
    return COMM_FAIL(err, COMM_BAD_REQUEST, "%s needs the member name: what list gives", op);
  }
  if (request->op == COMM_OP_OVERVIEW && request->shape_count < 0) {
    return COMM_FAIL(err, COMM_BAD_REQUEST,
                     "overview needs the member shape: the number of cells along each axis");
  }
  if (request->op == COMM_OP_CANCEL && request->target.kind == COMM_TOKEN_NONE) {
    return COMM_FAIL(err, COMM_BAD_REQUEST,
                     "cancel needs the member request: the id of the request to cancel");
  }
  return COMM_OK;
}
