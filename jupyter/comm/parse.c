#include "comm/parse.h"

#include "base/floating_point.h"
#include "comm/json.h"
#include "comm/member.h"

#include <string.h>

/* --- Data to an object --------------------------------------------------------- */

/* Take data apart. After a failure too, *object has the members that came before what is wrong. */
static gpufi_code take_object(gpufi_raw data, gpufi_object *object, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  object->count = 0;
  if (data.nbytes > GPUFI_REQUEST_MAX_NBYTES) {
    return REFUSE(err, CODE_BAD_REQUEST, "a request of %zu bytes; at most %zu are read",
                  data.nbytes, GPUFI_REQUEST_MAX_NBYTES);
  }
  gpufi_object_split(data, object);
  return object->problem
             ? REFUSE(err, CODE_BAD_REQUEST, "a request is one JSON object, not %s: %s",
                      data.nbytes > 0 ? gpufi_raw_show(data, shown) : "nothing", object->problem)
             : CODE_OK;
}

/* The value of a member, a new reference; NULL after a failure. */
static json_t *parse_value(const char *name, gpufi_raw text, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  const char *problem;
  json_t *value = gpufi_raw_parse(text, GPUFI_REQUEST_DEPTH_MAX - 1, &problem);
  if (!value) {
    gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s %s cannot be read: %s", name,
               gpufi_raw_show(text, shown), problem);
  }
  return value;
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

static gpufi_code take_id(const gpufi_object *object, gpufi_token *id, gpuf_error *err) {
  const gpufi_raw text = gpufi_object_get(object, "id");
  gpufi_code code = CODE_OK;
  if (text.data) {
    json_t *value = parse_value("id", text, err);
    code = value ? gpufi_token_take("id", value, id, err) : CODE_BAD_REQUEST;
    json_decref(value);
  }
  return code;
}

static gpufi_code take_op(const gpufi_object *object, gpufi_op *op, gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES], all[160];
  const gpufi_raw text = gpufi_object_get(object, "op");
  json_t *value = text.data ? parse_value("op", text, err) : NULL;
  if (text.data && !value) {
    return CODE_BAD_REQUEST;
  }
  *op = (gpufi_op)gpufi_json_choice(value, OP_LAST, gpufi_op_name);
  json_decref(value);
  return *op != OP_NONE ? CODE_OK
                        : REFUSE(err, CODE_UNKNOWN_OP, "op %s is not one of %s",
                                 text.data ? gpufi_raw_show(text, shown) : "(missing)",
                                 op_list(all, sizeof(all)));
}

static gpufi_code take_member(gpufi_raw quoted, gpufi_raw text, gpufi_request *request,
                              gpuf_error *err) {
  char shown[GPUFI_SHOWN_NBYTES];
  const char *name = gpufi_member_name(quoted, request->op);
  if (!name) {
    return REFUSE(err, CODE_BAD_REQUEST, "%s is not a member of a request for %s",
                  gpufi_raw_show(quoted, shown), gpufi_op_name(request->op));
  }
  json_t *value = parse_value(name, text, err);
  const gpufi_code code = value ? gpufi_member_take(name, value, request, err) : CODE_BAD_REQUEST;
  json_decref(value);
  return code;
}

static gpufi_code take_members(const gpufi_object *object, gpufi_request *request,
                               gpuf_error *err) {
  gpufi_code code = CODE_OK;
  for (size_t i = 0; i < object->count && code == CODE_OK; i++) {
    if (!gpufi_raw_is_name(object->names[i], "op") && !gpufi_raw_is_name(object->names[i], "id")) {
      code = take_member(object->names[i], object->values[i], request, err);
    }
  }
  return code == CODE_OK ? gpufi_members_check(request, err) : code;
}

static GPUFI_NOT_INLINED gpufi_code take_request(gpufi_raw data, gpufi_request *request,
                                                 gpuf_error *err) {
  gpufi_object object;
  gpuf_error unread; /* of an id or op: the object's own problem comes first */
  *request =
      (gpufi_request){.fragment = -1, .shape_count = -1, .bins = 64, .method = GPUF_OVERVIEW_MEAN};
  gpufi_code code = take_object(data, &object, err);
  const gpufi_code id_code = take_id(&object, &request->id, code == CODE_OK ? err : &unread);
  code = code == CODE_OK ? id_code : code;
  const gpufi_code op_code = take_op(&object, &request->op, code == CODE_OK ? err : &unread);
  code = code == CODE_OK ? op_code : code;
  return code == CODE_OK ? take_members(&object, request, err) : code;
}

gpufi_code gpufi_parse_request(gpufi_raw data, gpufi_request *request, gpuf_error *err) {
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  const gpufi_code code = take_request(data, request, err);
  gpufi_floating_point_end(callers);
  return code;
}

static GPUFI_NOT_INLINED gpufi_code take_open(gpufi_raw data, gpuf_error *err) {
  gpufi_object object;
  if (data.nbytes == 0) {
    return CODE_OK;
  }
  const gpufi_code code = take_object(data, &object, err);
  const gpufi_raw text = gpufi_object_get(&object, "protocol");
  if (code != CODE_OK || !text.data) {
    return code;
  }
  json_t *protocol = parse_value("protocol", text, err);
  if (!protocol) {
    return CODE_BAD_REQUEST;
  }
  char shown[GPUFI_SHOWN_NBYTES];
  const bool is_ours =
      json_is_integer(protocol) && json_integer_value(protocol) == GPUFI_PROTOCOL_VERSION;
  json_decref(protocol);
  return is_ours ? CODE_OK
                 : REFUSE(err, CODE_UNSUPPORTED_PROTOCOL,
                          "protocol %s is not spoken here; gpufetch %s speaks protocol %d",
                          gpufi_raw_show(text, shown), gpuf_version(), GPUFI_PROTOCOL_VERSION);
}

gpufi_code gpufi_parse_open(gpufi_raw data, gpuf_error *err) {
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  const gpufi_code code = take_open(data, err);
  gpufi_floating_point_end(callers);
  return code;
}
