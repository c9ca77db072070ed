/* Replies do not depend on the floating-point environment of the thread that makes them, which
 * keeps its own: requests also run on the program's threads. */
#include "comm_fixture.h"
#include "environments.h"

#include <math.h>

static const char *const requests[] = {
    "{\"op\": \"list\"}",
    "{\"op\": \"stats\", \"name\": \"x\"}",
    "{\"op\": \"overview\", \"name\": \"x\", \"shape\": [7, 5], \"method\": \"rms\"}",
    "{\"op\": \"overview\", \"name\": \"x\", \"shape\": [7, 5], \"method\": \"minmax\"}",
    "{\"op\": \"histogram\", \"name\": \"x\", \"bins\": 9}",
    "{\"op\": \"histogram\", \"name\": \"x\", \"bins\": 9, \"range\": [-0.1, 1.1]}",
    "{\"op\": \"histogram\", \"name\": \"x\", \"range\": [9007199254740993, 0.1]}",
    "{\"op\": \"histogram\", \"name\": \"x\", \"range\": [1e999, 1]}",
    "{\"op\": \"histogram\", \"name\": \"x\", \"range\": [1e-310, 4e-310]}",
    "{\"op\": \"read\", \"name\": \"x\", \"as\": \"float16\"}",
    "{\"op\": \"read\", \"name\": \"x\", \"bins\": 0.1}",
};

static void record_answer(const char *request) {
  const answer a = next_answer();
  record(request, a.reply->json, a.reply->json_nbytes);
  for (size_t i = 0; i < a.reply->buffer_count; i++) {
    record(request, a.reply->buffers[i], a.reply->buffer_nbytes[i]);
  }
  gpufi_reply_free(a.reply);
}

static void ask_all(const environment *e) {
  static float values[20][30];
  static const int64_t shape[2] = {20, 30};
  test_device = host_device;
  for (int i = 0; i < 600; i++) {
    (&values[0][0])[i] = i % 9 == 0 ? NAN : i % 7 == 0 ? 1e-40F * (float)i : 0.01F * (float)i;
  }
  const environment_state state = enter_environment(e);
  start((gpufi_dispatcher_options){.run_in_message = true, .step_share = 1e-300});
  const gpuf_tensor tensor = put(values, GPUF_DTYPE_FLOAT32, 2, shape);
  CHECK_OK(gpufi_dispatcher_publish(dispatcher, "x", &tensor, NULL, &err));
  CHECK_OK(gpufi_dispatcher_publish_float64(dispatcher, "tenth", 0.1, &err));
  CHECK_OK(gpufi_dispatcher_publish_float64(dispatcher, "none", NAN, &err));
  CHECK_OK(gpufi_dispatcher_publish_float64(dispatcher, "small", 3e-310, &err));
  CHECK_ENVIRONMENT(state);
  for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
    send(requests[i]);
    CHECK_ENVIRONMENT(state);
    record_answer(requests[i]);
  }
  send("{\"op\": \"stats\", \"name\": \"x\", \"at\": \"step\"}");
  gpufi_dispatcher_step(dispatcher, 1, 0.3);
  CHECK_ENVIRONMENT(state);
  record_answer("at a step");
  finish();
  drop(&tensor);
}

static void replies_are_the_same_in_any_environment(void) {
  run_in_environments(ask_all);
}

int main(void) {
  TEST(replies_are_the_same_in_any_environment);
  return test_finish();
}
