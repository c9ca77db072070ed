/* A request's JSON, checked. What comes in is hostile: its size and nesting are limited before it
 * is parsed, and every member is known by name and checked by type and range. */
#include "internal.h"

#include <inttypes.h>
#include <string.h>

#define DEPTH_MAX 4

const char *const gpufi_comm_op_names[COMM_OP_MAX + 1] = {
    [COMM_OP_NONE] = "",
    [COMM_OP_LIST] = "list",
    [COMM_OP_READ] = "read",
    [COMM_OP_OVERVIEW] = "overview",
    [COMM_OP_STATS] = "stats",
    [COMM_OP_HISTOGRAM] = "histogram",
    [COMM_OP_SUBSCRIBE] = "subscribe",
    [COMM_OP_SHARE] = "share",
    [COMM_OP_UNSHARE] = "unshare",
    [COMM_OP_CANCEL] = "cancel",
};

/* Where a value is written to be shown: what there is no room for is left out. */
typedef struct shown_text {
  char *text;
  size_t used, room;
} shown_text;

static int show_piece(const char *piece, size_t nbytes, void *arg) {
  shown_text *shown = arg;
  const size_t left = shown->room - shown->used;
  const size_t taken = nbytes < left ? nbytes : left;
  memcpy(shown->text + shown->used, piece, taken);
  shown->used += taken;
  return taken < nbytes ? -1 : 0; /* -1 ends it */
}

const char *gpufi_comm_show(const json_t *value, char *text) {
  shown_text shown = {.text = text, .room = COMM_SHOWN_NBYTES - 4};
  const size_t flags = JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_COMPACT;
  const bool whole = json_dump_callback(value, show_piece, &shown, flags) == 0;
  memcpy(text + shown.used, whole ? "" : "...", whole ? 1 : 4);
  return text;
}

bool gpufi_comm_token_equal(const gpufi_comm_token *a, const gpufi_comm_token *b) {
  return a->kind == b->kind && a->integer == b->integer && strcmp(a->text, b->text) == 0;
}

/* How deep brackets are nested outside strings; what is no JSON gets some number. */
static int nesting(const char *text, size_t nbytes) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < nbytes; i++) {
    if (in_string) {
      i += text[i] == '\\';
      in_string = i >= nbytes || text[i] != '"';
    } else if (text[i] == '"') {
      in_string = true;
    } else if (text[i] == '[' || text[i] == '{') {
      deepest = ++depth > deepest ? depth : deepest;
    } else if (text[i] == ']' || text[i] == '}') {
      depth--;
    }
  }
  return deepest;
}

/* An object, or NULL with the reason in `err`. */
static json_t *parse_object(const char *text, size_t nbytes, gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  json_error_t reason;
  if (nbytes > GPUFI_COMM_REQUEST_MAX_NBYTES) {
    gpufi_fail(err, GPUF_ERR_INVALID, 0, "a request of %zu bytes; at most %zu are read", nbytes,
               GPUFI_COMM_REQUEST_MAX_NBYTES);
    return NULL;
  }
  const int depth = nesting(text, nbytes);
  if (depth > DEPTH_MAX) {
    gpufi_fail(err, GPUF_ERR_INVALID, 0,
               "a request nested %d deep; no operation needs more than %d", depth, DEPTH_MAX);
    return NULL;
  }
  json_t *value = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &reason);
  if (!value) {
    /* jansson's own text quotes the input, which need not be printable. */
    gpufi_fail(err, GPUF_ERR_INVALID, 0,
               "a request that is not JSON (line %d, column %d): send one JSON object in UTF-8, "
               "without duplicate members, with integers of 64 bits",
               reason.line, reason.column);
  } else if (!json_is_object(value)) {
    gpufi_fail(err, GPUF_ERR_INVALID, 0, "a request is a JSON object, not %s",
               gpufi_comm_show(value, shown));
    json_decref(value);
    return NULL;
  }
  return value;
}

/* "list, read, ...": what a message about an unknown operation ends with. */
static const char *op_list(char *text, size_t nbytes) {
  size_t used = 0;
  for (int op = 1; op <= COMM_OP_MAX; op++) {
    used += (size_t)snprintf(text + used, nbytes - used, "%s%s", op > 1 ? ", " : "",
                             gpufi_comm_op_names[op]);
  }
  return text;
}

static gpufi_comm_code parse_op(const json_t *value, gpufi_comm_op *op, gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES], all[160];
  const char *text = value ? json_string_value(value) : NULL;
  for (int i = 1; text && i <= COMM_OP_MAX; i++) {
    if (strcmp(text, gpufi_comm_op_names[i]) == 0) {
      *op = (gpufi_comm_op)i;
      return COMM_OK;
    }
  }
  return COMM_FAIL(err, COMM_UNKNOWN_OP, "op %s is not one of %s",
                   value ? gpufi_comm_show(value, shown) : "(missing)", op_list(all, sizeof(all)));
}

static gpufi_comm_code parse_members(json_t *object, gpufi_comm_request *request, gpuf_error *err) {
  gpufi_comm_code code = COMM_OK;
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    if (strcmp(key, "op") == 0 || strcmp(key, "id") == 0) {
      continue;
    }
    if (!gpufi_comm_member_parse(key, value, request, &code, err)) {
      char shown[COMM_SHOWN_NBYTES];
      json_t *name = json_string(key);
      gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s is not a member of a request for %s",
                 name ? gpufi_comm_show(name, shown) : "(?)", gpufi_comm_op_names[request->op]);
      json_decref(name);
      return COMM_BAD_REQUEST;
    }
    if (code != COMM_OK) {
      return code;
    }
  }
  return gpufi_comm_members_check(request, err);
}

gpufi_comm_code gpufi_comm_request_parse(const char *text, size_t nbytes,
                                         gpufi_comm_request *request, gpuf_error *err) {
  *request = (gpufi_comm_request){
      .fragment = -1, .shape_count = -1, .bins = 64, .method = GPUF_OVERVIEW_MEAN};
  json_t *object = parse_object(text, nbytes, err);
  if (!object) {
    return COMM_BAD_REQUEST;
  }
  const json_t *id = json_object_get(object, "id");
  gpufi_comm_code code = id ? gpufi_comm_token_parse("id", id, &request->id, err) : COMM_OK;
  if (code == COMM_OK) {
    code = parse_op(json_object_get(object, "op"), &request->op, err);
  }
  if (code == COMM_OK) {
    code = parse_members(object, request, err);
  }
  json_decref(object);
  return code;
}

gpufi_comm_code gpufi_comm_open_parse(const char *text, size_t nbytes, gpuf_error *err) {
  char shown[COMM_SHOWN_NBYTES];
  if (nbytes == 0) {
    return COMM_OK;
  }
  json_t *object = parse_object(text, nbytes, err);
  if (!object) {
    return COMM_BAD_REQUEST;
  }
  const json_t *protocol = json_object_get(object, "protocol");
  gpufi_comm_code code = COMM_OK;
  if (protocol &&
      (!json_is_integer(protocol) || json_integer_value(protocol) != GPUFI_COMM_PROTOCOL)) {
    code = COMM_FAIL(err, COMM_UNSUPPORTED_PROTOCOL,
                     "protocol %s is not spoken here; gpufetch %s speaks protocol %d",
                     gpufi_comm_show(protocol, shown), gpuf_version(), GPUFI_COMM_PROTOCOL);
  }
  json_decref(object);
  return code;
}
