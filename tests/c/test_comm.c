/* The dispatcher's operations: replies hold what the tensors hold. */
#include "comm_fixture.h"

#include <math.h>

#define NX 6
#define NY 5
#define NZ 7

static const int64_t field_shape[3] = {NX, NY, NZ};
static float field[NX][NY][NZ];
static gpuf_tensor d_field;

static void start_with_field(gpufi_dispatcher_options options) {
  for (int i = 0; i < NX * NY * NZ; i++) {
    (&field[0][0][0])[i] = (float)(i * 37 % 101) - 50;
  }
  start(options);
  d_field = put(field, GPUF_DTYPE_FLOAT32, 3, field_shape);
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &d_field, NULL, &err));
}

static void finish_with_field(void) {
  finish();
  drop(&d_field);
}

static const float *floats_of(const answer *a, size_t count) {
  CHECK(a->reply->buffer_count == 1);
  CHECK(a->reply->buffer_nbytes[0] == count * sizeof(float));
  return a->reply->buffers[0];
}

static void the_hello_states_protocol_and_limits(void) {
  gpufi_reply *refusal;
  uint64_t other;
  start((gpufi_dispatcher_options){.server_name = "sim", .client_max = 2});
  const char *data = "{\"protocol\": 1}";
  CHECK_OK(gpufi_client_open(dispatcher, data, strlen(data), 77, &other, &refusal, &err));
  answer a = next_answer();
  CHECK(a.client == other && a.tag == 77 && other != client);
  json_t *hello = json_of(&a);
  CHECK(text_is(hello, "op", "hello") && text_is(hello, "server", "sim"));
  CHECK(int_of(hello, "protocol") == 1);
  CHECK(json_array_size(json_object_get(hello, "operations")) == 9);
  CHECK(int_of(json_object_get(hello, "limits"), "reply_nbytes") == 4 << 20);
  json_decref(hello);
  gpufi_reply_free(a.reply);
  finish();
}

static void a_live_read_gives_the_elements_of_the_slice(void) {
  start_with_field((gpufi_dispatcher_options){0});
  answer a = ask("{\"op\": \"read\", \"name\": \"field\", \"id\": \"x7\", \"slices\": "
                 "[[1, 100, 2], 3, [null, null, -1]]}");
  json_t *json = json_of(&a);
  CHECK(text_is(json, "id", "x7") && text_is(json, "dtype", "float32"));
  CHECK(json_array_size(json_object_get(json, "shape")) == 2);
  CHECK(int_of(json, "nbytes") == 3 * NZ * 4 && int_of(json, "fragments") == 1);
  const float *values = floats_of(&a, 3 * NZ);
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < NZ; k++) {
      CHECK(values[i * NZ + k] == field[1 + 2 * i][3][NZ - 1 - k]);
    }
  }
  json_decref(json);
  gpufi_reply_free(a.reply);
  finish_with_field();
}

static void slices_with_any_64_bit_integers_mean_what_python_means(void) {
  static const struct {
    const char *slice;
    int count, first, step;
  } cases[] = {
      {"[-9223372036854775808, 9223372036854775807, 9223372036854775807]", 1, 0, 1},
      {"[9223372036854775807, -9223372036854775808, -9223372036854775808]", 1, 5, -1},
      {"[null, null, -9223372036854775807]", 1, 5, -1},
      {"[5, 1, 1]", 0, 0, 1},
      {"[1, 5, -1]", 0, 0, 1},
      {"[-1, null, -2]", 3, 5, -2},
      {"[-100, -4, null]", 2, 0, 1},
      {"[null, -7, -1]", 6, 5, -1},
      {"[6, 9, 1]", 0, 0, 1},
      {"[null, 0, -1]", 5, 5, -1},
  };
  start_with_field((gpufi_dispatcher_options){0});
  for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
    char request[200];
    snprintf(request, sizeof(request),
             "{\"op\": \"read\", \"name\": \"field\", \"slices\": [%s, 0, 0]}", cases[c].slice);
    answer a = ask(request);
    const float *values = floats_of(&a, (size_t)cases[c].count);
    for (int i = 0; i < cases[c].count; i++) {
      CHECK(values[i] == field[cases[c].first + i * cases[c].step][0][0]);
    }
    gpufi_reply_free(a.reply);
  }
  finish_with_field();
}

static void a_read_can_convert(void) {
  start_with_field((gpufi_dispatcher_options){0});
  answer a = ask("{\"op\": \"read\", \"name\": \"field\", \"dtype\": \"int16\", \"slices\": [2]}");
  CHECK(a.reply->buffer_nbytes[0] == NY * NZ * 2);
  for (int i = 0; i < NY * NZ; i++) {
    CHECK(((const int16_t *)a.reply->buffers[0])[i] == (int16_t)(&field[2][0][0])[i]);
  }
  gpufi_reply_free(a.reply);
  ask_code("{\"op\": \"read\", \"name\": \"field\", \"dtype\": \"complex64\"}", "unsupported");
  finish_with_field();
}

/* Every fragment of a large read, put together, is the whole. */
static void fragments_tile_the_whole(void) {
  enum { ROWS = 700, COLUMNS = 1500, LAYERS = 3 };
  const int64_t shape[3] = {LAYERS, ROWS, COLUMNS};
  const size_t nbytes = (size_t)ROWS * COLUMNS * LAYERS * 4;
  uint8_t *bytes = malloc(nbytes), *whole = calloc(1, nbytes);
  char request[120];
  fill_random(bytes, nbytes, 3);
  start((gpufi_dispatcher_options){0});
  gpuf_tensor tensor = put(bytes, GPUF_DTYPE_UINT32, 3, shape);
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "large", &tensor, NULL, &err));
  ask_code("{\"op\": \"read\", \"name\": \"large\"}", "too_large");
  int64_t fragments = 1;
  for (int64_t fragment = 0; fragment < fragments; fragment++) {
    snprintf(request, sizeof(request), "{\"op\": \"read\", \"name\": \"large\", \"fragment\": %d}",
             (int)fragment);
    answer a = ask(request);
    json_t *json = json_of(&a);
    fragments = int_of(json, "fragments");
    CHECK((size_t)int_of(json, "nbytes") == nbytes && fragments >= 4 && fragments <= 6);
    const size_t offset = (size_t)int_of(json, "offset");
    CHECK(offset + a.reply->buffer_nbytes[0] <= nbytes);
    memcpy(whole + offset, a.reply->buffers[0], a.reply->buffer_nbytes[0]);
    json_decref(json);
    gpufi_reply_free(a.reply);
  }
  CHECK(memcmp(whole, bytes, nbytes) == 0);
  snprintf(request, sizeof(request), "{\"op\": \"read\", \"name\": \"large\", \"fragment\": %d}",
           (int)fragments);
  ask_code(request, "bad_request");
  free(bytes);
  free(whole);
  finish();
  drop(&tensor);
}

static void an_empty_selection_is_an_empty_buffer(void) {
  start_with_field((gpufi_dispatcher_options){0});
  answer a =
      ask("{\"op\": \"read\", \"name\": \"field\", \"slices\": [[3, 3, 1]], \"fragment\": 0}");
  json_t *json = json_of(&a);
  CHECK(int_of(json, "nbytes") == 0 && int_of(json, "fragments") == 1);
  CHECK(a.reply->buffer_count == 1 && a.reply->buffer_nbytes[0] == 0);
  json_decref(json);
  gpufi_reply_free(a.reply);
  finish_with_field();
}

static void an_overview_is_that_of_the_slice(void) {
  const int64_t shape[2] = {2, NZ};
  float low[2 * NZ], high[2 * NZ];
  start_with_field((gpufi_dispatcher_options){0});
  answer a = ask("{\"op\": \"overview\", \"name\": \"field\", \"slices\": [[null, null, 1], 1], "
                 "\"shape\": [2, 1000], \"method\": \"minmax\"}");
  json_t *json = json_of(&a);
  gpuf_tensor view;
  CHECK_OK(gpuf_tensor_init(&view, &field[0][1][0], cpu_device, GPUF_DTYPE_FLOAT32, 2,
                            (const int64_t[]){NX, NZ}, &err));
  view.strides_nbytes[0] = (int64_t)sizeof(field[0]);
  CHECK_OK(gpuf_reduce_overview(&view, GPUF_OVERVIEW_MINMAX, shape, low, high, NULL, &err));
  CHECK(a.reply->buffer_count == 2 && a.reply->buffer_nbytes[1] == sizeof(high));
  CHECK(memcmp(a.reply->buffers[0], low, sizeof(low)) == 0);
  CHECK(memcmp(a.reply->buffers[1], high, sizeof(high)) == 0);
  CHECK(int_of(json_object_get(json, "counts"), "count") == NX * NZ);
  CHECK(json_integer_value(json_array_get(json_object_get(json, "shape"), 1)) == NZ);
  json_decref(json);
  gpufi_reply_free(a.reply);
  finish_with_field();
}

static void an_overview_of_1024_by_1024_fits_a_reply(void) {
  const int64_t shape[2] = {1024, 2048};
  float *values = calloc(1024 * 2048, sizeof(float));
  start((gpufi_dispatcher_options){0});
  gpuf_tensor tensor = put(values, GPUF_DTYPE_FLOAT32, 2, shape);
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "u", &tensor, NULL, &err));
  ask_code("{\"op\": \"overview\", \"name\": \"u\", \"shape\": [1024, 1024]}", "");
  ask_code("{\"op\": \"overview\", \"name\": \"u\", \"shape\": [1024, 1025]}", "too_large");
  ask_code(
      "{\"op\": \"overview\", \"name\": \"u\", \"shape\": [1024, 1024], \"method\": \"minmax\"}",
      "too_large");
  free(values);
  finish();
  drop(&tensor);
}

static void statistics_that_json_cannot_say_are_strings(void) {
  const float values[6] = {1, 2, NAN, INFINITY, -INFINITY, 0};
  const uint64_t large[2] = {UINT64_MAX, 3};
  const int64_t six = 6, two = 2;
  start((gpufi_dispatcher_options){0});
  gpuf_tensor f = put(values, GPUF_DTYPE_FLOAT32, 1, &six);
  gpuf_tensor u = put(large, GPUF_DTYPE_UINT64, 1, &two);
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "f", &f, NULL, &err));
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "u", &u, NULL, &err));
  answer a = ask("{\"op\": \"stats\", \"name\": \"f\"}");
  json_t *json = json_of(&a);
  CHECK(text_is(json, "min", "-inf") && text_is(json, "max", "inf"));
  CHECK(int_of(json, "finite_count") == 3 && int_of(json, "zero_count") == 1);
  CHECK(int_of(json_object_get(json, "counts"), "nan_count") == 1);
  CHECK(json_real_value(json_object_get(json, "mean")) == 1.0);
  CHECK(json_real_value(json_object_get(json, "finite_max")) == 2.0);
  json_decref(json);
  gpufi_reply_free(a.reply);
  a = ask("{\"op\": \"stats\", \"name\": \"u\"}");
  json = json_of(&a);
  CHECK(text_is(json, "max", "18446744073709551615") && int_of(json, "min") == 3);
  json_decref(json);
  gpufi_reply_free(a.reply);
  finish();
  drop(&f);
  drop(&u);
}

static void a_histogram_has_counts_and_edges(void) {
  start_with_field((gpufi_dispatcher_options){0});
  answer a =
      ask("{\"op\": \"histogram\", \"name\": \"field\", \"bins\": 4, \"range\": [-20, 20.0]}");
  uint64_t bins[4], total = 0;
  const double range[2] = {-20, 20};
  gpuf_tensor view;
  CHECK_OK(gpuf_tensor_init(&view, field, cpu_device, GPUF_DTYPE_FLOAT32, 3, field_shape, &err));
  CHECK_OK(gpuf_reduce_histogram(&view, 4, range, bins, NULL, NULL, &err));
  CHECK(a.reply->buffer_count == 2 && a.reply->buffer_nbytes[0] == sizeof(bins));
  CHECK(memcmp(a.reply->buffers[0], bins, sizeof(bins)) == 0);
  CHECK(((const double *)a.reply->buffers[1])[1] == -10.0);
  json_t *json = json_of(&a);
  for (int i = 0; i < 4; i++) {
    total += bins[i];
  }
  CHECK(total + (uint64_t)int_of(json, "under_count") + (uint64_t)int_of(json, "over_count") ==
        NX * NY * NZ);
  json_decref(json);
  gpufi_reply_free(a.reply);
  ask_code("{\"op\": \"histogram\", \"name\": \"field\", \"range\": [2, 1]}", "bad_request");
  finish_with_field();
}

static void a_listing_has_tensors_and_values_and_goes_on_where_it_was_cut(void) {
  char name[GPUFI_TENSOR_NAME_MAX_NBYTES + 1], request[80];
  start_with_field((gpufi_dispatcher_options){0});
  memset(name, 'n', sizeof(name) - 1);
  name[sizeof(name) - 1] = '\0';
  CHECK_OK(gpufi_dispatcher_publish_float64(dispatcher, "F", 0.04, &err));
  CHECK_OK(gpufi_dispatcher_publish_float64(dispatcher, "rate", NAN, &err));
  CHECK_OK(gpufi_dispatcher_publish_int64(dispatcher, "seed", 11, &err));
  CHECK_OK(gpufi_dispatcher_publish_text(dispatcher, "run", "first", &err));
  CHECK_OK(gpufi_dispatcher_publish_text(dispatcher, "run", "second \"quoted\"", &err));
  for (int i = 0; i < 400; i++) {
    snprintf(name, 8, "%07d", i);
    name[7] = 'x';
    CHECK_OK(gpufi_dispatcher_publish(dispatcher, name, &d_field, NULL, &err));
  }
  int tensors = 0, values = 0, pages = 0;
  for (bool more = true; more; pages++) {
    snprintf(request, sizeof(request), "{\"op\": \"list\", \"skip\": %d}", tensors + values);
    answer a = ask(request);
    json_t *json = json_of(&a);
    json_t *some = json_object_get(json, "values");
    if (pages == 0) {
      CHECK(json_real_value(json_object_get(some, "F")) == 0.04);
      CHECK(text_is(some, "rate", "nan") && text_is(some, "run", "second \"quoted\""));
      CHECK(int_of(some, "seed") == 11);
    }
    values += (int)json_object_size(some);
    tensors += (int)json_array_size(json_object_get(json, "tensors"));
    more = json_is_true(json_object_get(json, "truncated"));
    json_decref(json);
    gpufi_reply_free(a.reply);
  }
  CHECK(values == 4 && tensors == 401 && pages > 1);
  finish_with_field();
}

/* Whether member `key` of the only tensor of a listing holds these three numbers. */
static bool listed_axes_are(const char *key, const int64_t *expected) {
  answer a = ask("{\"op\": \"list\"}");
  json_t *json = json_of(&a);
  const json_t *item = json_array_get(json_object_get(json, "tensors"), 0);
  const json_t *found = json_object_get(item, key);
  bool equal = expected ? json_array_size(found) == 3 : !found;
  for (size_t axis = 0; axis < 3 && expected; axis++) {
    equal &= json_integer_value(json_array_get(found, axis)) == expected[axis];
  }
  json_decref(json);
  gpufi_reply_free(a.reply);
  return equal;
}

static void a_part_is_listed_with_its_place_in_the_array(void) {
  const int64_t global_shape[] = {field_shape[0] + 7, field_shape[1], INT32_MAX};
  const int64_t start[] = {7, 0, 100}, moved[] = {6, 0, 100};
  gpuf_publish_options options = {.global_shape = global_shape, .start = start};
  start_with_field((gpufi_dispatcher_options){0});
  CHECK(listed_axes_are("global_shape", NULL) && listed_axes_are("start", NULL));
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &d_field, &options, &err));
  CHECK(listed_axes_are("global_shape", global_shape) && listed_axes_are("start", start));
  CHECK(listed_axes_are("shape", field_shape));
  ask_code("{\"op\": \"stats\", \"name\": \"field\", \"generation\": 2}", "");
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &d_field, &options, &err));
  ask_code("{\"op\": \"stats\", \"name\": \"field\", \"generation\": 2}", "");
  options.start = moved;
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &d_field, &options, &err));
  CHECK(listed_axes_are("start", moved));
  ask_code("{\"op\": \"stats\", \"name\": \"field\", \"generation\": 2}", "stale");
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &d_field, NULL, &err));
  CHECK(listed_axes_are("start", NULL));
  finish_with_field();
}

static void a_part_outside_its_array_is_refused(void) {
  const int64_t large = INT64_MAX / 8;
  const struct {
    int64_t start[3], global_shape[3];
    const char *text;
  } bad[] = {
      {{-1, 0, 0}, {100, 100, 100}, "axis 0"},
      {{0, 0, 1}, {field_shape[0], field_shape[1], field_shape[2]}, "axis 2"},
      {{0, INT64_MAX, 0}, {100, INT64_MAX, 100}, "axis 1"},
      {{0, 0, 0}, {field_shape[0], field_shape[1] - 1, field_shape[2]}, "axis 1"},
      {{0, 0, 0}, {large, large, large}, "2^63"},
  };
  start_with_field((gpufi_dispatcher_options){0});
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    const gpuf_publish_options options = {.global_shape = bad[i].global_shape,
                                          .start = bad[i].start};
    CHECK_FAILS(gpufi_dispatcher_publish(dispatcher, "b", &d_field, &options, &err),
                GPUF_ERR_INVALID, bad[i].text);
  }
  const gpuf_publish_options no_start = {.global_shape = field_shape};
  const gpuf_publish_options no_shape = {.start = field_shape};
  CHECK_FAILS(gpufi_dispatcher_publish(dispatcher, "b", &d_field, &no_start, &err),
              GPUF_ERR_INVALID, "start");
  CHECK_FAILS(gpufi_dispatcher_publish(dispatcher, "b", &d_field, &no_shape, &err),
              GPUF_ERR_INVALID, "both");
  finish_with_field();
}

static void a_generation_tells_when_the_shape_has_changed(void) {
  char request[100];
  start_with_field((gpufi_dispatcher_options){0});
  answer a = ask("{\"op\": \"read\", \"name\": \"field\", \"slices\": [0]}");
  json_t *json = json_of(&a);
  snprintf(request, sizeof(request), "{\"op\": \"stats\", \"name\": \"field\", \"generation\": %d}",
           (int)int_of(json, "generation"));
  json_decref(json);
  gpufi_reply_free(a.reply);
  gpuf_tensor other = put(field, GPUF_DTYPE_FLOAT32, 3, field_shape);
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &other, NULL,
                                    &err)); /* other memory of the same shape */
  ask_code(request, "");
  CHECK_OK(gpuf_tensor_slice(&other, 0, 0, 1, 2, &err));
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &other, NULL, &err));
  ask_code(request, "stale");
  finish_with_field();
  drop(&other);
}

static int released;

static void count_release(void *arg) {
  __atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

/* A tensor of two fragments, each of whose elements is `value`. */
static gpuf_tensor put_large(uint8_t value) {
  const int64_t shape[2] = {2, 1 << 22};
  uint8_t *bytes = malloc((size_t)2 << 22);
  memset(bytes, value, (size_t)2 << 22);
  gpuf_tensor tensor = put(bytes, GPUF_DTYPE_UINT8, 2, shape);
  free(bytes);
  return tensor;
}

/* Ask a client's request of "large", of that publication (0 = any). Gives the publication that it
 * is of, and the first byte of its buffer, if it has one; -1 if the request is stale. */
static int64_t ask_large(uint64_t asking, const char *members, int64_t publication, int *value) {
  char request[160], more[60] = "";
  if (publication > 0) {
    snprintf(more, sizeof(more), ", \"publication\": %d", (int)publication);
  }
  snprintf(request, sizeof(request), "{\"name\": \"large\", %s%s}", members, more);
  CHECK(gpufi_dispatcher_message(dispatcher, asking, request, strlen(request), 0, 0));
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  answer a = next_answer();
  json_t *json = json_of(&a);
  const json_t *error = json_object_get(json, "error");
  int64_t found = -1;
  if (error) {
    CHECK(text_is(error, "code", "stale"));
  } else {
    found = int_of(json, "publication");
    *value = a.reply->buffer_count > 0 ? *(const uint8_t *)a.reply->buffers[0] : -1;
  }
  json_decref(json);
  gpufi_reply_free(a.reply);
  return found;
}

static int64_t read_fragment(uint64_t asking, int fragment, int64_t publication, int *value) {
  char members[60];
  snprintf(members, sizeof(members), "\"op\": \"read\", \"fragment\": %d", fragment);
  return ask_large(asking, members, publication, value);
}

static void publish_large(const gpuf_tensor *tensor) {
  const gpuf_publish_options options = {.release = count_release, .release_arg = &released};
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "large", tensor, &options, &err));
}

static void a_read_in_fragments_goes_on_in_what_it_began_with(void) {
  int value = 0;
  released = 0;
  start((gpufi_dispatcher_options){0});
  gpuf_tensor tensors[3] = {put_large(1), put_large(2), put_large(3)};
  publish_large(&tensors[0]);
  const int64_t first = read_fragment(client, 0, 0, &value);
  CHECK(value == 1);
  publish_large(&tensors[1]);
  CHECK(released == 0 && read_fragment(client, 1, first, &value) == first && value == 1);
  CHECK(released == 1); /* the last fragment lets go */
  CHECK(read_fragment(client, 1, first, &value) == -1);
  const int64_t second = read_fragment(client, 0, 0, &value);
  CHECK(second != first && value == 2);
  publish_large(&tensors[1]); /* the same memory is the same publication */
  CHECK(released == 2 && read_fragment(client, 1, second, &value) == second && value == 2);
  CHECK(read_fragment(client, 0, 0, &value) == second);
  CHECK_OK(gpufi_dispatcher_unpublish(dispatcher, "large", 0, &err));
  CHECK(released == 3); /* nothing is held */
  publish_large(&tensors[2]);
  CHECK(read_fragment(client, 1, second, &value) == -1);
  finish();
  CHECK(released == 4);
  for (int i = 0; i < 3; i++) {
    drop(&tensors[i]);
  }
}

#define OVERVIEW "\"op\": \"overview\", \"shape\": [1, 1], \"method\": \"max\""
#define HOLD ", \"hold\": true"

static void requests_that_belong_together_are_of_what_the_first_holds(void) {
  int value = 0;
  released = 0;
  start((gpufi_dispatcher_options){0});
  gpuf_tensor tensors[2] = {put_large(1), put_large(2)};
  publish_large(&tensors[0]);
  const int64_t held = ask_large(client, OVERVIEW HOLD, 0, &value);
  CHECK(held > 0 && value == 1);
  publish_large(&tensors[1]);
  CHECK(ask_large(client, "\"op\": \"stats\"" HOLD, held, &value) == held);
  CHECK(ask_large(client, OVERVIEW, 0, &value) != held && value == 2); /* ends no hold */
  CHECK(read_fragment(client, 0, held, &value) == held && value == 1);
  CHECK(ask_large(client, "\"op\": \"read\", \"fragment\": 1" HOLD, held, &value) == held);
  CHECK(released == 0); /* the last fragment lets go unless it holds */
  CHECK(ask_large(client, "\"op\": \"histogram\", \"bins\": 1", held, &value) == held);
  CHECK(released == 1); /* and so does any other request that names it */
  CHECK(ask_large(client, OVERVIEW, held, &value) == -1);
  CHECK(ask_large(client, "\"op\": \"stats\"" HOLD, 0, &value) > held);
  CHECK_OK(gpufi_dispatcher_unpublish(dispatcher, "large", 0, &err));
  CHECK(released == 2);
  finish();
  for (int i = 0; i < 2; i++) {
    drop(&tensors[i]);
  }
}

static void what_is_held_is_let_go_of(void) {
  int value = 0;
  uint64_t other;
  gpuf_tensor tensors[2] = {put_large(1), put_large(2)};
  released = 0;
  start((gpufi_dispatcher_options){.hold_ns = 1});
  publish_large(&tensors[0]);
  int64_t held = read_fragment(client, 0, 0, &value);
  publish_large(&tensors[1]);
  CHECK(released == 1); /* unused for too long */
  CHECK(read_fragment(client, 1, held, &value) == -1);
  finish();
  released = 0;
  start((gpufi_dispatcher_options){0});
  open_client(&other);
  publish_large(&tensors[0]);
  held = read_fragment(client, 0, 0, &value);
  CHECK(read_fragment(other, 0, 0, &value) == held);
  publish_large(&tensors[1]);
  gpufi_client_close(dispatcher, other);
  CHECK(released == 0 && read_fragment(client, 0, 0, &value) != held && value == 2);
  CHECK(released == 1); /* a client holds one tensor */
  publish_large(&tensors[0]);
  gpufi_client_close(dispatcher, client);
  CHECK(released == 2);
  open_client(&client);
  finish();
  for (int i = 0; i < 2; i++) {
    drop(&tensors[i]);
  }
}

static void the_longest_unused_of_too_many_held_tensors_is_let_go_of(void) {
  const char *stats = "\"op\": \"stats\"" HOLD;
  int value = 0;
  uint64_t others[3];
  gpuf_tensor tensors[4] = {put_large(1), put_large(2), put_large(3), put_large(4)};
  released = 0;
  start((gpufi_dispatcher_options){.held_max = 2});
  for (int i = 0; i < 3; i++) {
    open_client(&others[i]);
  }
  publish_large(&tensors[0]);
  const int64_t first = ask_large(client, stats, 0, &value);
  publish_large(&tensors[1]);
  const int64_t second = ask_large(others[0], stats, 0, &value);
  CHECK(ask_large(others[1], stats, 0, &value) == second); /* both count as one */
  publish_large(&tensors[2]);
  const int64_t third = ask_large(others[2], stats, 0, &value);
  CHECK(released == 0 && ask_large(client, stats, first, &value) == first);
  publish_large(&tensors[3]);
  CHECK(released == 1);
  CHECK(ask_large(others[0], stats, second, &value) == -1);
  CHECK(ask_large(others[1], stats, second, &value) == -1);
  CHECK(ask_large(client, stats, first, &value) == first);
  CHECK(ask_large(others[2], stats, third, &value) == third);
  finish();
  CHECK(released == 4);
  for (int i = 0; i < 4; i++) {
    drop(&tensors[i]);
  }
}

static void a_share_ends_with_its_tensor(void) {
  gpuf_share_handle handle;
  gpuf_attachment *attachment;
  gpuf_tensor attached;
  released = 0;
  start((gpufi_dispatcher_options){0});
  gpuf_tensor tensor = put(field, GPUF_DTYPE_FLOAT32, 3, field_shape);
  const gpuf_publish_options options = {.release = count_release, .release_arg = &released};
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "shared", &tensor, &options, &err));
  answer a = ask("{\"op\": \"share\", \"name\": \"shared\"}");
  json_t *json = json_of(&a);
  CHECK_OK(gpuf_share_from_text(json_string_value(json_object_get(json, "handle")), &handle, &err));
  answer again = ask("{\"op\": \"share\", \"name\": \"shared\"}");
  CHECK(strcmp(again.reply->json, a.reply->json) == 0); /* a client has one share of a tensor */
  gpufi_reply_free(again.reply);
  json_decref(json);
  gpufi_reply_free(a.reply);
  CHECK_OK(gpuf_attach(&handle, &attachment, &attached, &err));
  CHECK_FAILS(gpufi_dispatcher_unpublish(dispatcher, "shared", 1000000, &err), GPUF_ERR_TIMEOUT,
              "1 shares");
  CHECK_FAILS(gpufi_dispatcher_unpublish(dispatcher, "shared", 0, &err), GPUF_ERR_TIMEOUT,
              "1 shares");
  CHECK(released == 0);
  ask_code("{\"op\": \"stats\", \"name\": \"shared\"}", "unknown_name");
  CHECK_OK(gpuf_detach(attachment, &err));
  CHECK(released == 1);
  /* The name is known until a call has told that the memory is free. */
  CHECK_OK(gpufi_dispatcher_unpublish(dispatcher, "shared", 0, &err));
  CHECK_FAILS(gpufi_dispatcher_unpublish(dispatcher, "shared", 0, &err), GPUF_ERR_INVALID,
              "nothing");
  CHECK(released == 1);
  finish();
  drop(&tensor);
}

static void publishing_the_same_memory_again_leaves_its_shares(void) {
  gpufi_dispatcher_counts counts;
  int releases[2] = {0, 0};
  start_with_field((gpufi_dispatcher_options){0});
  gpuf_publish_options options = {.release = count_release, .release_arg = &releases[0]};
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &d_field, &options, &err));
  ask_code("{\"op\": \"share\", \"name\": \"field\"}", "");
  options.release_arg = &releases[1];
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &d_field, &options, &err));
  CHECK(releases[0] == 1 && releases[1] == 0);
  gpufi_dispatcher_get_counts(dispatcher, &counts);
  CHECK(counts.share_count == 1);
  gpuf_tensor other = put(field, GPUF_DTYPE_FLOAT32, 3, field_shape);
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "field", &other, NULL, &err));
  gpufi_dispatcher_get_counts(dispatcher, &counts);
  CHECK(releases[1] == 1 && counts.share_count == 0);
  finish_with_field();
  drop(&other);
}

static void a_share_ends_with_its_client_or_by_unshare(void) {
  gpufi_dispatcher_counts counts;
  start_with_field((gpufi_dispatcher_options){0});
  ask_code("{\"op\": \"unshare\", \"name\": \"field\"}", "unknown_name");
  ask_code("{\"op\": \"share\", \"name\": \"field\"}", "");
  ask_code("{\"op\": \"unshare\", \"name\": \"field\"}", "");
  ask_code("{\"op\": \"share\", \"name\": \"field\"}", "");
  gpufi_dispatcher_get_counts(dispatcher, &counts);
  CHECK(counts.share_count == 1);
  gpufi_client_close(dispatcher, client);
  gpufi_dispatcher_get_counts(dispatcher, &counts);
  CHECK(counts.share_count == 0 && counts.client_count == 0);
  CHECK_OK(gpufi_dispatcher_unpublish(dispatcher, "field", 0, &err));
  finish_with_field();
}

static void tensors_in_host_memory_can_be_read_but_not_shared(void) {
  const int64_t two = 2;
  double values[2] = {1.5, 2.5};
  gpuf_tensor tensor;
  start((gpufi_dispatcher_options){0});
  CHECK_OK(gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT64, 1, &two, &err));
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "v", &tensor, NULL, &err));
  answer a = ask("{\"op\": \"read\", \"name\": \"v\"}");
  CHECK(memcmp(a.reply->buffers[0], values, sizeof(values)) == 0);
  gpufi_reply_free(a.reply);
  send("{\"op\": \"share\", \"name\": \"v\"}");
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  a = next_answer();
  CHECK(strstr(a.reply->json, "\"error\"") != NULL);
  gpufi_reply_free(a.reply);
  finish();
}

static gpuf_status resolve_one(void *arg, const char *name, gpufi_source *source,
                               gpuf_error *error) {
  if (strcmp(name, "broken") == 0) {
    snprintf(error->message, sizeof(error->message), "sparse: call to_dense() first");
    return GPUF_ERR_UNSUPPORTED;
  }
  if (strcmp(name, "mine") != 0) {
    snprintf(error->message, sizeof(error->message), "no variable of that name");
    return GPUF_ERR_INVALID;
  }
  *source = (gpufi_source){.tensor = d_field, .release = count_release, .release_arg = &released};
  return GPUF_OK;
}

static gpuf_status list_one(void *arg, gpufi_listing *listing, gpuf_error *error) {
  gpufi_listing_add(listing, "mine", "torch", &d_field, NULL);
  gpufi_listing_add(listing, "broken", "torch", NULL, "sparse: call to_dense() first");
  gpufi_listing_add(listing, "line\nfeed", "torch", &d_field, NULL);
  return GPUF_OK;
}

static void a_resolver_finds_what_is_not_published(void) {
  released = 0;
  start_with_field((gpufi_dispatcher_options){.resolve = resolve_one, .list = list_one});
  ask_code("{\"op\": \"stats\", \"name\": \"mine\"}", "");
  CHECK(released == 1);
  ask_code("{\"op\": \"stats\", \"name\": \"field\"}", "");
  CHECK(released == 1);
  ask_code("{\"op\": \"stats\", \"name\": \"broken\"}", "unreadable");
  ask_code("{\"op\": \"stats\", \"name\": \"nobody\"}", "unknown_name");
  answer a = ask("{\"op\": \"list\"}");
  json_t *json = json_of(&a);
  const json_t *tensors = json_object_get(json, "tensors");
  CHECK(json_array_size(tensors) == 3);
  CHECK(text_is(json_array_get(tensors, 2), "problem", "sparse: call to_dense() first"));
  json_decref(json);
  gpufi_reply_free(a.reply);
  ask_code("{\"op\": \"share\", \"name\": \"mine\"}", "");
  ask_code("{\"op\": \"share\", \"name\": \"mine\"}", "");
  gpufi_client_close(dispatcher, client);
  CHECK(released == 3);
  finish_with_field();
}

int main(void) {
  TEST_ON_DEVICES(the_hello_states_protocol_and_limits);
  TEST_ON_DEVICES(a_live_read_gives_the_elements_of_the_slice);
  TEST_ON_DEVICES(slices_with_any_64_bit_integers_mean_what_python_means);
  TEST_ON_DEVICES(a_read_can_convert);
  TEST_ON_DEVICES(fragments_tile_the_whole);
  TEST_ON_DEVICES(an_empty_selection_is_an_empty_buffer);
  TEST_ON_DEVICES(an_overview_is_that_of_the_slice);
  TEST_ON_DEVICES(an_overview_of_1024_by_1024_fits_a_reply);
  TEST_ON_DEVICES(statistics_that_json_cannot_say_are_strings);
  TEST_ON_DEVICES(a_histogram_has_counts_and_edges);
  TEST_ON_DEVICES(a_listing_has_tensors_and_values_and_goes_on_where_it_was_cut);
  TEST_ON_DEVICES(a_part_is_listed_with_its_place_in_the_array);
  TEST_ON_DEVICES(a_part_outside_its_array_is_refused);
  TEST_ON_DEVICES(a_generation_tells_when_the_shape_has_changed);
  TEST_ON_DEVICES(a_read_in_fragments_goes_on_in_what_it_began_with);
  TEST_ON_DEVICES(requests_that_belong_together_are_of_what_the_first_holds);
  TEST_ON_DEVICES(the_longest_unused_of_too_many_held_tensors_is_let_go_of);
  TEST_ON_DEVICES(what_is_held_is_let_go_of);
  TEST_ON_DEVICES(a_share_ends_with_its_tensor);
  TEST_ON_DEVICES(publishing_the_same_memory_again_leaves_its_shares);
  TEST_ON_DEVICES(a_share_ends_with_its_client_or_by_unshare);
  TEST_ON_DEVICES(tensors_in_host_memory_can_be_read_but_not_shared);
  TEST_ON_DEVICES(a_resolver_finds_what_is_not_published);
  return test_finish();
}
