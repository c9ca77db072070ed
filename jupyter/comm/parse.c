#include "comm/parse.h"

#include "comm/json.h"
#include "comm/member.h"

#include <string.h>

/* --- Data to an object --------------------------------------------------------- */

static gpufi_code too_large(size_t nbytes, gpuf_error *err) {
  return REFUSE(err, CODE_BAD_REQUEST, "a request of %zu bytes; at most %zu are read", nbytes,
                GPUFI_REQUEST_MAX_NBYTES);
}

static gpufi_code too_deep(gpuf_error *err) {
  return REFUSE(err, CODE_BAD_REQUEST,
                "a request nested more than %d deep; no operation needs that",
                GPUFI_REQUEST_DEPTH_MAX);
}

static gpufi_code parse_text(const gpufi_data *data, json_t **value, gpuf_error *err) {
  json_error_t reason;
  if (data->nbytes > GPUFI_REQUEST_MAX_NBYTES) {
    return too_large(data->nbytes, err);
  }
  if (gpufi_json_text_is_deeper(data->text, data->nbytes, GPUFI_REQUEST_DEPTH_MAX)) {
    return too_deep(err);
  }
  *value = json_loadb(data->text ? data->text : "", data->nbytes,
                      JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &reason);
  if (!*value) {
    /* jansson's own text quotes the input, which need not be printable. */
    return REFUSE(err, CODE_BAD_REQUEST,
                  "a request that is not JSON (line %d, column %d): send one JSON object in UTF-8, "
                  "without duplicate members, with integers of 64 bits",
                  reason.line, reason.column);
  }
  return CODE_OK;
}

/* The limits of text hold for a parsed value too: its size is that of its compact JSON. */
static gpufi_code check_value(const json_t *value, gpuf_error *err) {
  if (gpufi_json_is_deeper(value, GPUFI_REQUEST_DEPTH_MAX)) {
    return too_deep(err);
  }
  const size_t nbytes = json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
  return nbytes > GPUFI_REQUEST_MAX_NBYTES ? too_large(nbytes, err) : CODE_OK;
}

/* *object is a new reference; NULL after a failure. */
static gpufi_code take_object(const gpufi_data *data, json_t **object, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  gpufi_code code = CODE_OK;
  *object = NULL;
  if (data->value) {
    code = check_value(data->value, err);
    *object = code == CODE_OK ? json_incref((json_t *)data->value) : NULL;
  } else {
    code = parse_text(data, object, err);
  }
  if (code == CODE_OK && !json_is_object(*object)) {
    code = REFUSE(err, CODE_BAD_REQUEST, "a request is a JSON object, not %s",
                  gpufi_json_show(*object, shown));
    json_decref(*object);
    *object = NULL;
  }
  return code;
}

/* --- An object to a request ---------------------------------------------------- */

/* The operations' names, for a message. */
static const char *op_list(char *text, size_t capacity) {
  size_t used = 0;
  text[0] = '\0';
  for (int op = 1; op <= OP_LAST && used < capacity; op++) {
    used += (size_t)snprintf(text + used, capacity - used, "%s%s", op > 1 ? ", " : "",
                             gpufi_op_name(op));
  }
  return text;
}

static gpufi_code take_op(const json_t *value, gpufi_op *op, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES], all[160];
  *op = (gpufi_op)gpufi_json_choice(value, OP_LAST, gpufi_op_name);
  return *op != OP_NONE ? CODE_OK
                        : REFUSE(err, CODE_UNKNOWN_OP, "op %s is not one of %s",
                                 value ? gpufi_json_show(value, shown) : "(missing)",
                                 op_list(all, sizeof(all)));
}

static gpufi_code take_members(json_t *object, gpufi_request *request, gpuf_error *err) {
  gpufi_code code = CODE_OK;
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    if (code == CODE_OK && strcmp(key, "op") != 0 && strcmp(key, "id") != 0) {
      code = gpufi_member_take(key, value, request, err);
    }
  }
  return code == CODE_OK ? gpufi_members_check(request, err) : code;
}

gpufi_code gpufi_parse_request(const gpufi_data *data, gpufi_request *request, gpuf_error *err) {
  json_t *object;
  *request =
      (gpufi_request){.fragment = -1, .shape_count = -1, .bins = 64, .method = GPUF_OVERVIEW_MEAN};
  gpufi_code code = take_object(data, &object, err);
  if (code != CODE_OK) {
    return code;
  }
  const json_t *id = json_object_get(object, "id");
  if (id) {
    code = gpufi_token_take("id", id, &request->id, err);
  }
  if (code == CODE_OK) {
    code = take_op(json_object_get(object, "op"), &request->op, err);
  }
  if (code == CODE_OK) {
    code = take_members(object, request, err);
  }
  json_decref(object);
  return code;
}

gpufi_code gpufi_parse_open(const gpufi_data *data, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  json_t *object;
  if (!data->value && data->nbytes == 0) {
    return CODE_OK;
  }
  gpufi_code code = take_object(data, &object, err);
  if (code != CODE_OK) {
    return code;
  }
  const json_t *protocol = json_object_get(object, "protocol");
  if (protocol &&
      (!json_is_integer(protocol) || json_integer_value(protocol) != GPUFI_PROTOCOL_VERSION)) {
    code = REFUSE(err, CODE_UNSUPPORTED_PROTOCOL,
                  "protocol %s is not spoken here; gpufetch %s speaks protocol %d",
                  gpufi_json_show(protocol, shown), gpuf_version(), GPUFI_PROTOCOL_VERSION);
  }
  json_decref(object);
  return code;
}
