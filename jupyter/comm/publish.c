#include "comm/publish.h"

#include "base/error.h"
#include "base/text.h"
#include "comm/json.h"
#include "comm/name.h"

#include <string.h>

/* An entry that is not published any more: its shares end, and the use that came with it. */
static void let_go(gpufi_dispatcher *dispatcher, gpufi_entry *entry) {
  gpufi_shares_withdraw(&dispatcher->shares, 0, NULL, entry);
  gpufi_entry_release(entry);
}

gpuf_status gpufi_dispatcher_publish(gpufi_dispatcher *dispatcher, const char *name,
                                     const gpuf_tensor *tensor, const gpuf_publish_options *options,
                                     gpuf_error *err) {
  gpufi_source source;
  gpufi_entry *replaced = NULL;
  gpuf_status status = gpufi_name_check(name, err);
  if (status == GPUF_OK) {
    status = gpufi_source_init(&source, name, tensor, options, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_registry_put(dispatcher->registry, name, &source, &replaced, err);
  }
  if (replaced) {
    let_go(dispatcher, replaced);
  }
  gpufi_holds_end_unused(dispatcher->registry);
  return status;
}

static bool withdraw(gpufi_dispatcher *dispatcher, const char *name) {
  gpufi_entry *entry = gpufi_registry_take(dispatcher->registry, name);
  const bool known = entry != NULL;
  if (known) {
    gpufi_holds_end_of_withdrawn(dispatcher->registry, name);
    let_go(dispatcher, entry);
  }
  return known;
}

gpuf_status gpufi_dispatcher_unpublish(gpufi_dispatcher *dispatcher, const char *name,
                                       int64_t timeout_ns, gpuf_error *err) {
  const gpuf_status status = gpufi_name_check(name, err);
  if (status != GPUF_OK) {
    return status;
  }
  bool known = withdraw(dispatcher, name);
  known |= gpufi_values_remove(&dispatcher->values, name);
  known |= gpufi_registry_is_awaited(dispatcher->registry, name); /* a call after a timeout */
  return known ? gpufi_registry_wait(dispatcher->registry, name, timeout_ns, err)
               : gpufi_fail(err, GPUF_ERR_INVALID, 0, "nothing is published as %s", name);
}

gpuf_status gpufi_dispatcher_await_unpublished(gpufi_dispatcher *dispatcher, const char *name,
                                               int64_t timeout_ns, gpuf_error *err) {
  const gpuf_status status = gpufi_name_check(name, err);
  if (status != GPUF_OK) {
    return status;
  }
  return gpufi_registry_has(dispatcher->registry, name)
             ? gpufi_fail(err, GPUF_ERR_STATE, 0,
                          "%s was published again, while the end of what it was is waited for",
                          name)
             : gpufi_registry_wait(dispatcher->registry, name, timeout_ns, err);
}

gpuf_status gpufi_unpublish_all(gpufi_dispatcher *dispatcher, int64_t timeout_ns, gpuf_error *err) {
  while (withdraw(dispatcher, NULL)) {
  }
  gpufi_holds_end_of_withdrawn(dispatcher->registry, NULL); /* also of what was found */
  return gpufi_registry_wait(dispatcher->registry, NULL, timeout_ns, err);
}

void gpufi_dispatcher_end_stale_shares(gpufi_dispatcher *dispatcher) {
  gpufi_shares_withdraw_stale(&dispatcher->shares, dispatcher->registry);
  gpufi_holds_end_unused(dispatcher->registry);
}

gpuf_status gpufi_dispatcher_publish_int64(gpufi_dispatcher *dispatcher, const char *name,
                                           int64_t value, gpuf_error *err) {
  return gpufi_values_put(&dispatcher->values, name, json_integer(value), err);
}

gpuf_status gpufi_dispatcher_publish_float64(gpufi_dispatcher *dispatcher, const char *name,
                                             double value, gpuf_error *err) {
  return gpufi_values_put(&dispatcher->values, name, gpufi_json_f64(value), err);
}

gpuf_status gpufi_dispatcher_publish_text(gpufi_dispatcher *dispatcher, const char *name,
                                          const char *text, gpuf_error *err) {
  const size_t nbytes = strnlen(text, GPUFI_TEXT_MAX_NBYTES + 1);
  if (nbytes > GPUFI_TEXT_MAX_NBYTES || !gpufi_text_is_utf8(text)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the text of a value must be UTF-8 of at most %d bytes",
                      GPUFI_TEXT_MAX_NBYTES);
  }
  return gpufi_values_put(&dispatcher->values, name, json_string(text), err);
}
