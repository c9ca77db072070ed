#include "comm/operation.h"

#include "comm/draft.h"
#include "comm/json.h"
#include "comm/select.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "replies say that they are little-endian");

/* An operation on a tensor, while it runs. */
typedef struct operation {
  gpufi_dispatcher *dispatcher;
  const gpufi_request *request;
  gpufi_entry *entry;
  gpuf_tensor view;                 /* the tensor, narrowed by the slices */
  int64_t fragment, fragment_count; /* which one is read, of how many */
  gpufi_draft *draft;
} operation;

static void set(const operation *o, const char *key, json_t *value) {
  gpufi_draft_set(o->draft, key, value);
}

static const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};

/* --- read ---------------------------------------------------------------------- */

static gpufi_code check_cast(const operation *o, gpuf_dtype dtype, gpuf_error *err) {
  const gpuf_dtype from = o->view.dtype;
  const bool is_complex = from == GPUF_DTYPE_COMPLEX64 || from == GPUF_DTYPE_COMPLEX128 ||
                          dtype == GPUF_DTYPE_COMPLEX64 || dtype == GPUF_DTYPE_COMPLEX128;
  if (dtype != from && (is_complex || dtype == GPUF_DTYPE_FLOAT8_E8M0FNU)) {
    return REFUSE(err, CODE_UNSUPPORTED, "%s of %s cannot be read as %s: leave out dtype",
                  o->request->name, gpuf_dtype_name(from), gpuf_dtype_name(dtype));
  }
  return CODE_OK;
}

static gpufi_code copy_out(const operation *o, const gpuf_tensor *src, gpuf_dtype dtype,
                           gpuf_error *err) {
  const size_t nbytes = (size_t)gpuf_tensor_count(src) * gpuf_dtype_nbytes(dtype);
  const gpuf_copy_options options = {.struct_nbytes = sizeof(options), .cast = dtype != src->dtype};
  gpuf_tensor dst;
  gpuf_error cause;
  void *data;
  const gpufi_code code = gpufi_draft_add_buffer(o->draft, src->device, nbytes, &data, err);
  if (code != CODE_OK || nbytes == 0) {
    return code;
  }
  gpuf_status status = gpuf_tensor_init(&dst, data, cpu, dtype, src->ndim, src->shape, &cause);
  if (status == GPUF_OK) {
    status = gpuf_copy(&dst, src, &options, &cause);
  }
  return gpufi_code_of_status(status, "read", o->request->name, &cause, err);
}

static gpufi_code run_read(operation *o, gpuf_error *err) {
  const gpuf_dtype dtype = o->request->dtype ? o->request->dtype : o->view.dtype;
  const size_t element_nbytes = gpuf_dtype_nbytes(dtype);
  const int64_t index = o->request->fragment < 0 ? 0 : o->request->fragment;
  gpuf_tensor selected = o->view;
  gpufi_fragment fragment;
  gpufi_code code = check_cast(o, dtype, err);
  if (code == CODE_OK) {
    code = gpufi_select_fragment(&selected, element_nbytes, index, &fragment, err);
  }
  if (code != CODE_OK) {
    return code;
  }
  const int64_t total = gpuf_tensor_count(&o->view) * (int64_t)element_nbytes;
  if (fragment.count > 1 && o->request->fragment < 0) {
    return REFUSE(err, CODE_TOO_LARGE,
                  "this selection of %s has %" PRId64 " bytes; a reply holds at most %zu: ask "
                  "for it in fragments, with \"fragment\" from 0 to %" PRId64 ", or for less",
                  o->request->name, total, GPUFI_REPLY_MAX_NBYTES, fragment.count - 1);
  }
  set(o, "dtype", json_string(gpuf_dtype_name(dtype)));
  set(o, "shape", gpufi_json_shape(o->view.shape, o->view.ndim));
  set(o, "nbytes", json_integer(total));
  set(o, "byteorder", json_string("little"));
  set(o, "fragment", json_integer(index));
  set(o, "fragments", json_integer(fragment.count));
  set(o, "offset", json_integer((json_int_t)fragment.offset_nbytes));
  o->fragment = index;
  o->fragment_count = fragment.count;
  return copy_out(o, &selected, dtype, err);
}

/* --- overview ------------------------------------------------------------------ */

/* The member `counts`. */
static void set_counts(const operation *o, uint64_t count, uint64_t nan_count,
                       uint64_t posinf_count, uint64_t neginf_count) {
  json_t *object = json_object();
  gpufi_json_put(&object, "count", gpufi_json_u64(count));
  gpufi_json_put(&object, "nan_count", gpufi_json_u64(nan_count));
  gpufi_json_put(&object, "posinf_count", gpufi_json_u64(posinf_count));
  gpufi_json_put(&object, "neginf_count", gpufi_json_u64(neginf_count));
  set(o, "counts", object);
}

/* The number of cells along each axis, which is at most the number of elements there, and of all
 * cells; a reply must hold them. */
static gpufi_code reduced_shape(const operation *o, size_t cell_nbytes, int64_t *shape,
                                int64_t *count, gpuf_error *err) {
  const gpufi_request *request = o->request;
  const int64_t limit = (int64_t)(GPUFI_REPLY_MAX_NBYTES / cell_nbytes);
  if (request->shape_count != o->view.ndim) {
    return REFUSE(err, CODE_BAD_REQUEST,
                  "shape has %" PRId32 " lengths, but the selection of %s has %" PRId32 " axes",
                  request->shape_count, request->name, o->view.ndim);
  }
  *count = 1;
  for (int32_t axis = 0; axis < o->view.ndim; axis++) {
    const int64_t length = o->view.shape[axis];
    shape[axis] = request->shape[axis] < length ? request->shape[axis] : length;
  }
  for (int32_t axis = 0; axis < o->view.ndim && *count > 0; axis++) {
    if (shape[axis] > limit / *count && gpuf_tensor_count(&o->view) > 0) {
      return REFUSE(err, CODE_TOO_LARGE,
                    "an overview of %s with so many cells; a reply holds %" PRId64
                    " of them: shorten shape",
                    request->name, limit);
    }
    *count *= shape[axis];
  }
  *count = gpuf_tensor_count(&o->view) > 0 ? *count : 0;
  return CODE_OK;
}

static gpufi_code run_overview(operation *o, gpuf_error *err) {
  const gpuf_overview_method method = o->request->method;
  const gpuf_dtype dtype = gpuf_overview_dtype(o->view.dtype, method);
  const size_t cell_nbytes = gpuf_dtype_nbytes(dtype);
  const size_t array_count = method == GPUF_OVERVIEW_MINMAX ? 2 : 1;
  void *results[2] = {NULL, NULL};
  int64_t shape[GPUF_NDIM_MAX], count;
  gpuf_counts counts = GPUF_COUNTS_INIT;
  gpuf_error cause;
  gpufi_code code = reduced_shape(o, cell_nbytes * array_count, shape, &count, err);
  for (size_t i = 0; i < array_count && code == CODE_OK; i++) {
    code = gpufi_draft_add_buffer(o->draft, o->view.device, (size_t)count * cell_nbytes,
                                  &results[i], err);
  }
  if (code == CODE_OK) {
    const gpuf_status status =
        gpuf_reduce_overview(&o->view, method, shape, results[0], results[1], &counts, &cause);
    code = gpufi_code_of_status(status, "reduce", o->request->name, &cause, err);
  }
  if (code != CODE_OK) {
    return code;
  }
  set(o, "method", json_string(gpufi_method_name(method)));
  set(o, "dtype", json_string(gpuf_dtype_name(dtype)));
  set(o, "shape", gpufi_json_shape(shape, o->view.ndim));
  set(o, "source_shape", gpufi_json_shape(o->view.shape, o->view.ndim));
  set(o, "byteorder", json_string("little"));
  set_counts(o, counts.count, counts.nan_count, counts.posinf_count, counts.neginf_count);
  return CODE_OK;
}

/* --- stats, histogram ---------------------------------------------------------- */

static json_t *scalar_json(gpuf_dtype dtype, gpuf_scalar value) {
  switch (dtype) {
  case GPUF_DTYPE_INT8:
  case GPUF_DTYPE_INT16:
  case GPUF_DTYPE_INT32:
  case GPUF_DTYPE_INT64:
    return json_integer(value.i64);
  case GPUF_DTYPE_BOOL:
  case GPUF_DTYPE_UINT8:
  case GPUF_DTYPE_UINT16:
  case GPUF_DTYPE_UINT32:
  case GPUF_DTYPE_UINT64:
    return gpufi_json_u64(value.u64);
  default:
    return gpufi_json_f64(value.f64);
  }
}

static gpufi_code run_stats(operation *o, gpuf_error *err) {
  const gpuf_dtype dtype = o->view.dtype;
  gpuf_stats stats = GPUF_STATS_INIT;
  gpuf_error cause;
  const gpuf_status status = gpuf_reduce_stats(&o->view, &stats, &cause);
  if (status != GPUF_OK) {
    return gpufi_code_of_status(status, "reduce", o->request->name, &cause, err);
  }
  set(o, "dtype", json_string(gpuf_dtype_name(dtype)));
  set(o, "shape", gpufi_json_shape(o->view.shape, o->view.ndim));
  set_counts(o, stats.count, stats.nan_count, stats.posinf_count, stats.neginf_count);
  set(o, "finite_count", gpufi_json_u64(stats.finite_count));
  set(o, "zero_count", gpufi_json_u64(stats.zero_count));
  set(o, "min", scalar_json(dtype, stats.min));
  set(o, "max", scalar_json(dtype, stats.max));
  set(o, "finite_min", scalar_json(dtype, stats.finite_min));
  set(o, "finite_max", scalar_json(dtype, stats.finite_max));
  set(o, "mean", gpufi_json_f64(stats.mean));
  set(o, "variance", gpufi_json_f64(stats.variance));
  return CODE_OK;
}

static gpufi_code run_histogram(operation *o, gpuf_error *err) {
  const size_t bins = (size_t)o->request->bins;
  gpuf_histogram_rest rest = GPUF_HISTOGRAM_REST_INIT;
  gpuf_error cause;
  void *counts, *edges = NULL;
  gpufi_code code = gpufi_draft_add_buffer(o->draft, cpu, bins * sizeof(uint64_t), &counts, err);
  if (code == CODE_OK) {
    code = gpufi_draft_add_buffer(o->draft, cpu, (bins + 1) * sizeof(double), &edges, err);
  }
  if (code == CODE_OK) {
    const gpuf_status status = gpuf_reduce_histogram(
        &o->view, o->request->bins, o->request->has_range ? o->request->range : NULL, counts, edges,
        &rest, &cause);
    code = gpufi_code_of_status(status, "count", o->request->name, &cause, err);
  }
  if (code != CODE_OK) {
    return code;
  }
  set(o, "shape", gpufi_json_shape(o->view.shape, o->view.ndim));
  set(o, "bins", json_integer(o->request->bins));
  set(o, "byteorder", json_string("little"));
  set(o, "nan_count", gpufi_json_u64(rest.nan_count));
  set(o, "under_count", gpufi_json_u64(rest.under_count));
  set(o, "over_count", gpufi_json_u64(rest.over_count));
  return CODE_OK;
}

/* --- share --------------------------------------------------------------------- */

static gpufi_code run_share(operation *o, gpuf_error *err) {
  char text[GPUF_SHARE_TEXT_MAX_NBYTES];
  gpuf_share_handle handle;
  gpufi_code code =
      gpufi_shares_make(&o->dispatcher->shares, o->request, o->entry, &o->view, &handle, err);
  if (code == CODE_OK && gpuf_share_to_text(&handle, text, err) != GPUF_OK) {
    code = CODE_INTERNAL;
  }
  if (code == CODE_OK) {
    set(o, "dtype", json_string(gpuf_dtype_name(o->view.dtype)));
    set(o, "shape", gpufi_json_shape(o->view.shape, o->view.ndim));
    set(o, "handle", json_string(text));
  }
  return code;
}

static gpufi_code run_unshare(gpufi_dispatcher *dispatcher, const gpufi_request *request,
                              gpufi_draft *draft, gpuf_error *err) {
  const int32_t count =
      gpufi_shares_withdraw(&dispatcher->shares, request->client, request->name, NULL);
  gpufi_draft_set(draft, "name", json_string(request->name));
  return count > 0
             ? CODE_OK
             : REFUSE(err, CODE_UNKNOWN_NAME, "this client has no share of %s", request->name);
}

/* --- Execution ----------------------------------------------------------------- */

/* A request that asks for it, and the first of several fragments, holds the tensor for the requests
 * that belong to it. The last fragment lets it go, and so does a request that names the
 * publication, unless it asks to hold it. */
static void hold(const operation *o) {
  const gpufi_request *request = o->request;
  const bool is_first = o->fragment == 0, is_last = o->fragment == o->fragment_count - 1;
  const bool has_others = o->fragment_count > 1;
  if (is_first && (request->hold || has_others) && !request->at_step) {
    gpufi_holds_begin(o->entry, request->client);
  }
  if (is_last && !request->hold && (has_others || request->publication != 0)) {
    gpufi_holds_end(o->entry, request->client);
  }
  /* Whoever closes the client removes it first and then ends its hold. */
  if (!gpufi_clients_has(&o->dispatcher->clients, request->client)) {
    gpufi_holds_end_of_client(o->dispatcher->registry, request->client);
  }
}

/* The member `tensor`: what the slices select from. */
static void set_tensor(const operation *o) {
  json_t *object = json_object();
  gpufi_json_put(&object, "shape", gpufi_json_shape(o->view.shape, o->view.ndim));
  gpufi_json_put(&object, "dtype", json_string(gpuf_dtype_name(o->view.dtype)));
  set(o, "tensor", object);
}

static gpufi_code run_on_tensor(gpufi_dispatcher *dispatcher, const gpufi_request *request,
                                gpufi_draft *draft, gpuf_error *err) {
  static gpufi_code (*const runs[OP_LAST + 1])(operation *, gpuf_error *) = {
      [OP_READ] = run_read,           [OP_OVERVIEW] = run_overview, [OP_STATS] = run_stats,
      [OP_HISTOGRAM] = run_histogram, [OP_SHARE] = run_share,
  };
  operation o = {.dispatcher = dispatcher, .request = request, .draft = draft, .fragment_count = 1};
  gpufi_holds_end_unused(dispatcher->registry);
  gpufi_code code = gpufi_entry_acquire(dispatcher->registry, request, &o.entry, &o.view, err);
  if (code != CODE_OK) {
    return code;
  }
  gpufi_draft_set(draft, "name", json_string(request->name));
  if (o.entry->generation > 0) {
    gpufi_draft_set(draft, "generation", json_integer(o.entry->generation));
  }
  gpufi_draft_set(draft, "publication", json_integer(o.entry->publication));
  gpufi_steps_describe(&dispatcher->steps, &draft->json);
  if (request->op != OP_SHARE) { /* which has no slices */
    set_tensor(&o);
  }
  code = gpufi_select(request, &o.view, err);
  if (code == CODE_OK) {
    code = runs[request->op](&o, err);
  }
  if (code == CODE_OK) {
    hold(&o);
  }
  gpufi_entry_release(o.entry);
  return code;
}

static gpufi_code list(gpufi_dispatcher *dispatcher, const gpufi_request *request,
                       gpufi_draft *draft, gpuf_error *err) {
  gpufi_steps_describe(&dispatcher->steps, &draft->json);
  return gpufi_listing_make(dispatcher->registry, &dispatcher->values, dispatcher->options.list,
                            dispatcher->options.arg, request->skip, draft->json, err);
}

gpufi_reply *gpufi_execute(gpufi_dispatcher *dispatcher, const gpufi_request *request,
                           gpufi_code *code, gpuf_error *err) {
  gpufi_draft draft = gpufi_draft_begin(request);
  switch (request->op) {
  case OP_LIST:
    *code = list(dispatcher, request, &draft, err);
    break;
  case OP_SUBSCRIBE:
    gpufi_steps_describe(&dispatcher->steps, &draft.json);
    *code = CODE_OK;
    break;
  case OP_UNSHARE:
    *code = run_unshare(dispatcher, request, &draft, err);
    break;
  default:
    *code = run_on_tensor(dispatcher, request, &draft, err);
    break;
  }
  if (*code == CODE_OK) {
    return gpufi_draft_finish(&draft, dispatcher->budget);
  }
  gpufi_draft_clear(&draft);
  return NULL;
}
