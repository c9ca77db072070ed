#include "comm/values.h"

#include "base/error.h"
#include "comm/name.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gpufi_values_init(gpufi_values *values, int32_t max) {
  *values = (gpufi_values){.max = max};
  pthread_mutex_init(&values->lock, NULL);
}

/* Under the lock. */
static void unlink_value(gpufi_value **link) {
  gpufi_value *value = *link;
  *link = value->next;
  json_decref(value->json);
  free(value);
}

void gpufi_values_fini(gpufi_values *values) {
  while (values->first) {
    unlink_value(&values->first);
  }
  pthread_mutex_destroy(&values->lock);
}

/* Under the lock: the link that leads to the value of a name, or to where it would be. */
static gpufi_value **value_link(gpufi_values *values, const char *name) {
  gpufi_value **link = &values->first;
  while (*link && strcmp((*link)->name, name) < 0) {
    link = &(*link)->next;
  }
  return link;
}

/* Under the lock. */
static int32_t count_values(const gpufi_values *values) {
  int32_t count = 0;
  for (const gpufi_value *value = values->first; value; value = value->next) {
    count++;
  }
  return count;
}

gpuf_status gpufi_values_put(gpufi_values *values, const char *name, json_t *json,
                             gpuf_error *err) {
  gpuf_status status = gpufi_name_check(name, err);
  if (status != GPUF_OK) {
    json_decref(json);
    return status;
  }
  gpufi_value *fresh = calloc(1, sizeof(*fresh));
  pthread_mutex_lock(&values->lock);
  gpufi_value **link = value_link(values, name);
  const bool known = *link && strcmp((*link)->name, name) == 0;
  if (!json || !fresh) {
    status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to publish %s", name);
  } else if (known) {
    json_t *old = (*link)->json;
    (*link)->json = json;
    json = old;
  } else if (count_values(values) >= values->max) {
    status =
        gpufi_fail(err, GPUF_ERR_STATE, 0,
                   "%" PRId32 " values are published; unpublish some before %s", values->max, name);
  } else {
    snprintf(fresh->name, sizeof(fresh->name), "%s", name);
    fresh->json = json;
    fresh->next = *link;
    *link = fresh;
    json = NULL;
    fresh = NULL;
  }
  json_decref(json);
  pthread_mutex_unlock(&values->lock);
  free(fresh);
  return status;
}

bool gpufi_values_remove(gpufi_values *values, const char *name) {
  pthread_mutex_lock(&values->lock);
  gpufi_value **link = value_link(values, name);
  const bool known = *link && strcmp((*link)->name, name) == 0;
  if (known) {
    unlink_value(link);
  }
  pthread_mutex_unlock(&values->lock);
  return known;
}
