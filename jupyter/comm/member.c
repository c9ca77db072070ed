#include "comm/member.h"

#include "comm/json.h"
#include "comm/name.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* --- Kinds of values ----------------------------------------------------------- */

static gpufi_code take_integer(const char *what, const json_t *value, int64_t low, int64_t high,
                               int64_t *result, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  if (!json_is_integer(value) || json_integer_value(value) < low ||
      json_integer_value(value) > high) {
    return REFUSE(err, CODE_BAD_REQUEST, "%s %s is not an integer from %" PRId64 " to %" PRId64,
                  what, gpufi_json_show(value, shown), low, high);
  }
  *result = json_integer_value(value);
  return CODE_OK;
}

gpufi_code gpufi_token_take(const char *what, const json_t *value, gpufi_token *token,
                            gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  if (json_is_integer(value)) {
    token->kind = TOKEN_INT;
    token->integer = json_integer_value(value);
  } else if (gpufi_json_is_plain(value, GPUFI_TOKEN_MAX_NBYTES)) {
    token->kind = TOKEN_TEXT;
    snprintf(token->text, sizeof(token->text), "%s", json_string_value(value));
  } else {
    return REFUSE(err, CODE_BAD_REQUEST,
                  "%s %s is neither a 64-bit integer nor an ASCII string of 1 to %d characters",
                  what, gpufi_json_show(value, shown), GPUFI_TOKEN_MAX_NBYTES);
  }
  return CODE_OK;
}

/* A list of at most GPUF_NDIM_MAX items, whatever they are; *count is how many. */
static bool is_axis_list(const json_t *value, int32_t *count) {
  *count = (int32_t)json_array_size(value);
  return json_is_array(value) && json_array_size(value) <= GPUF_NDIM_MAX;
}

/* --- Members that several operations have -------------------------------------- */

static gpufi_code take_name(const json_t *value, gpufi_request *request, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  if (!json_is_string(value) ||
      !gpufi_name_valid(json_string_value(value), json_string_length(value))) {
    return REFUSE(err, CODE_BAD_REQUEST,
                  "name %s is not a string of 1 to %d bytes without control characters",
                  gpufi_json_show(value, shown), GPUFI_TENSOR_NAME_MAX_NBYTES);
  }
  snprintf(request->name, sizeof(request->name), "%s", json_string_value(value));
  return CODE_OK;
}

/* A bound of [start, stop, step]: an integer, or null for none. */
static bool take_bound(const json_t *value, bool *given, int64_t *bound) {
  *given = json_is_integer(value);
  *bound = *given ? json_integer_value(value) : 0;
  return *given || json_is_null(value);
}

static gpufi_code take_slice(size_t axis, const json_t *item, gpufi_slice *slice, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  bool has_step = false;
  if (json_is_integer(item)) {
    *slice = (gpufi_slice){.is_index = true, .start = json_integer_value(item)};
    return CODE_OK;
  }
  if (json_array_size(item) != 3 ||
      !take_bound(json_array_get(item, 0), &slice->has_start, &slice->start) ||
      !take_bound(json_array_get(item, 1), &slice->has_stop, &slice->stop) ||
      !take_bound(json_array_get(item, 2), &has_step, &slice->step)) {
    return REFUSE(err, CODE_BAD_SLICE,
                  "slices[%zu] %s is neither a 64-bit integer nor [start, stop, step] of 64-bit "
                  "integers and nulls",
                  axis, gpufi_json_show(item, shown));
  }
  if (has_step && slice->step == 0) {
    return REFUSE(err, CODE_BAD_SLICE, "slices[%zu] %s has step 0", axis,
                  gpufi_json_show(item, shown));
  }
  slice->step = has_step ? slice->step : 1;
  return CODE_OK;
}

static gpufi_code take_slices(const json_t *value, gpufi_request *request, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  gpufi_code code = CODE_OK;
  if (!is_axis_list(value, &request->slice_count)) {
    return REFUSE(err, CODE_BAD_SLICE, "slices %s is not a list of at most %d items",
                  gpufi_json_show(value, shown), GPUF_NDIM_MAX);
  }
  for (size_t axis = 0; axis < json_array_size(value) && code == CODE_OK; axis++) {
    code = take_slice(axis, json_array_get(value, axis), &request->slices[axis], err);
  }
  return code;
}

static gpufi_code take_at(const json_t *value, gpufi_request *request, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  const char *text = json_string_value(value);
  request->at_step = text && strcmp(text, "step") == 0;
  if (!request->at_step && !(text && strcmp(text, "live") == 0)) {
    return REFUSE(err, CODE_BAD_REQUEST, "at %s is neither \"live\" nor \"step\"",
                  gpufi_json_show(value, shown));
  }
  return CODE_OK;
}

static gpufi_code take_hold(const json_t *value, gpufi_request *request, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  request->hold = json_is_true(value);
  return json_is_boolean(value) ? CODE_OK
                                : REFUSE(err, CODE_BAD_REQUEST, "hold %s is neither true nor false",
                                         gpufi_json_show(value, shown));
}

static gpufi_code take_supersede(const json_t *value, gpufi_request *request, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  if (!gpufi_json_is_plain(value, GPUFI_TOKEN_MAX_NBYTES)) {
    return REFUSE(err, CODE_BAD_REQUEST,
                  "supersede %s is not an ASCII string of 1 to %d characters",
                  gpufi_json_show(value, shown), GPUFI_TOKEN_MAX_NBYTES);
  }
  snprintf(request->supersede, sizeof(request->supersede), "%s", json_string_value(value));
  return CODE_OK;
}

/* --- Members that one operation has -------------------------------------------- */

static const char *dtype_name(int dtype) {
  return gpuf_dtype_name((gpuf_dtype)dtype);
}

static gpufi_code take_dtype(const json_t *value, gpufi_request *request, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  request->dtype = (gpuf_dtype)gpufi_json_choice(value, GPUF_DTYPE_MAX, dtype_name);
  return request->dtype != 0
             ? CODE_OK
             : REFUSE(err, CODE_BAD_REQUEST,
                      "dtype %s is not the name of an element type, such as \"float32\"",
                      gpufi_json_show(value, shown));
}

static gpufi_code take_method(const json_t *value, gpufi_request *request, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  const int method = gpufi_json_choice(value, GPUF_OVERVIEW_FIRST, gpufi_method_name);
  request->method = (gpuf_overview_method)method;
  return method != 0 ? CODE_OK
                     : REFUSE(err, CODE_BAD_REQUEST,
                              "method %s is not one of mean, rms, min, max, minmax, first",
                              gpufi_json_show(value, shown));
}

static gpufi_code take_shape(const json_t *value, gpufi_request *request, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  gpufi_code code = CODE_OK;
  if (!is_axis_list(value, &request->shape_count)) {
    return REFUSE(err, CODE_BAD_REQUEST, "shape %s is not a list of at most %d lengths",
                  gpufi_json_show(value, shown), GPUF_NDIM_MAX);
  }
  for (size_t axis = 0; axis < json_array_size(value) && code == CODE_OK; axis++) {
    code = take_integer("a length in shape", json_array_get(value, axis), 1, INT64_MAX,
                        &request->shape[axis], err);
  }
  return code;
}

static gpufi_code take_range(const json_t *value, gpufi_request *request, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  request->has_range = true;
  for (size_t i = 0; i < 2; i++) {
    const json_t *limit = json_array_get(value, i);
    if (json_array_size(value) != 2 || !json_is_number(limit)) {
      return REFUSE(err, CODE_BAD_REQUEST, "range %s is not [low, high], two numbers",
                    gpufi_json_show(value, shown));
    }
    request->range[i] = json_number_value(limit);
  }
  return CODE_OK;
}

static gpufi_code take_after(const json_t *value, gpufi_request *request, gpuf_error *err) {
  request->has_after = true;
  return take_integer("after", value, INT64_MIN, INT64_MAX, &request->after, err);
}

static gpufi_code take_target(const json_t *value, gpufi_request *request, gpuf_error *err) {
  return gpufi_token_take("request", value, &request->target, err);
}

/* --- The tables ---------------------------------------------------------------- */

#define BIT(op) (1u << (op))
#define READS (BIT(OP_READ) | BIT(OP_OVERVIEW) | BIT(OP_STATS) | BIT(OP_HISTOGRAM))
#define NAMED (READS | BIT(OP_SHARE) | BIT(OP_UNSHARE))

static const struct {
  const char *name;
  gpufi_code (*take)(const json_t *value, gpufi_request *request, gpuf_error *err);
  unsigned ops; /* BIT of each operation that has it */
} members[] = {
    {"name", take_name, NAMED},
    {"slices", take_slices, READS},
    {"at", take_at, READS},
    {"hold", take_hold, READS},
    {"supersede", take_supersede, READS},
    {"dtype", take_dtype, BIT(OP_READ)},
    {"shape", take_shape, BIT(OP_OVERVIEW)},
    {"method", take_method, BIT(OP_OVERVIEW)},
    {"range", take_range, BIT(OP_HISTOGRAM)},
    {"after", take_after, BIT(OP_SUBSCRIBE)},
    {"request", take_target, BIT(OP_CANCEL)},
};

static const struct {
  const char *name;
  size_t offset; /* of its int64_t in a request */
  int64_t low, high;
  unsigned ops;
} integers[] = {
    {"generation", offsetof(gpufi_request, generation), 1, INT64_MAX, READS | BIT(OP_SHARE)},
    {"publication", offsetof(gpufi_request, publication), 1, INT64_MAX, READS},
    {"fragment", offsetof(gpufi_request, fragment), 0, INT64_MAX, BIT(OP_READ)},
    {"bins", offsetof(gpufi_request, bins), 1, GPUF_HISTOGRAM_BINS_MAX, BIT(OP_HISTOGRAM)},
    {"skip", offsetof(gpufi_request, skip), 0, INT64_MAX, BIT(OP_LIST)},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *gpufi_member_name(gpufi_raw quoted, gpufi_op op) {
  for (size_t i = 0; i < COUNT(members); i++) {
    if ((members[i].ops & BIT(op)) && gpufi_raw_is_name(quoted, members[i].name)) {
      return members[i].name;
    }
  }
  for (size_t i = 0; i < COUNT(integers); i++) {
    if ((integers[i].ops & BIT(op)) && gpufi_raw_is_name(quoted, integers[i].name)) {
      return integers[i].name;
    }
  }
  return NULL;
}

gpufi_code gpufi_member_take(const char *name, const json_t *value, gpufi_request *request,
                             gpuf_error *err) {
  for (size_t i = 0; i < COUNT(members); i++) {
    if (strcmp(name, members[i].name) == 0) {
      return members[i].take(value, request, err);
    }
  }
  for (size_t i = 0; i < COUNT(integers); i++) {
    if (strcmp(name, integers[i].name) == 0) {
      int64_t *field = (int64_t *)((char *)request + integers[i].offset);
      return take_integer(name, value, integers[i].low, integers[i].high, field, err);
    }
  }
  return REFUSE(err, CODE_INTERNAL, "no operation has a member %s", name);
}

gpufi_code gpufi_members_check(const gpufi_request *request, gpuf_error *err) {
  if ((NAMED & BIT(request->op)) && request->name[0] == '\0') {
    return REFUSE(err, CODE_BAD_REQUEST, "%s needs the member name: what list gives",
                  gpufi_op_name(request->op));
  }
  if (request->op == OP_OVERVIEW && request->shape_count < 0) {
    return REFUSE(err, CODE_BAD_REQUEST,
                  "overview needs the member shape: the number of cells along each axis");
  }
  if (request->op == OP_CANCEL && request->target.kind == TOKEN_NONE) {
    return REFUSE(err, CODE_BAD_REQUEST,
                  "cancel needs the member request: the id of the request to cancel");
  }
  return CODE_OK;
}
