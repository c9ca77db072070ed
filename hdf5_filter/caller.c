#include "caller.h"
#include "object.h"

#include <string.h>

/* A symbol, and the pointer to function or to data that takes its address. */
typedef struct wanted {
  const char *name;
  void *pointer; /* filled through memcpy, for ISO C has no conversion to a pointer to function */
} wanted;

/* Fill all pointers, with null where there is no such symbol; returns how many there are. */
static size_t find_symbols(const gpufi_object *object, const wanted *symbols, size_t count) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    void *address = gpufi_object_symbol(object, symbols[i].name);
    memcpy(symbols[i].pointer, &address, sizeof(address));
    found += address != NULL;
  }
  return found;
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

bool gpufi_caller_find(const void *return_address, gpufi_caller *caller) {
  const wanted symbols[] = {
      {"H5Pget_chunk", &caller->get_chunk},
      {"H5Pget_nfilters", &caller->filter_count},
      {"H5Pget_filter2", &caller->get_filter},
      {"H5Pmodify_filter", &caller->modify_filter},
      {"H5Tget_class", &caller->type_class},
      {"H5Tget_size", &caller->type_size},
      {"H5Tget_order", &caller->type_order},
      {"H5Tget_sign", &caller->type_sign},
      {"H5Tget_fields", &caller->type_fields},
      {"H5Tget_super", &caller->type_super},
      {"H5Tget_nmembers", &caller->type_nmembers},
      {"H5Tget_member_type", &caller->type_member},
      {"H5Tget_member_offset", &caller->type_member_offset},
      {"H5Tis_variable_str", &caller->type_is_variable_str},
      {"H5Tclose", &caller->type_close},
  };
  gpufi_object library;
  if (!gpufi_object_open(&library, return_address)) {
    return false;
  }
  const bool found = find_symbols(&library, symbols, COUNT_OF(symbols)) == COUNT_OF(symbols);
  gpufi_object_close(&library);
  return found;
}

/* The functions that put an entry on the error stack. Newer releases (seen: 1.14.6, 2.0, 2.2) pause
 * their stack while a filter runs and drop what is pushed meanwhile, but not a whole stack that
 * takes its place. */
typedef struct error_api {
  herr_t (*push)(hid_t, const char *, const char *, unsigned, hid_t, hid_t, hid_t, const char *,
                 ...);
  hid_t (*create_stack)(void);
  herr_t (*set_current_stack)(hid_t);
  herr_t (*is_paused)(hid_t, bool *); /* NULL in older releases, which do not pause */
  const hid_t *class_id, *major, *minor;
} error_api;

static bool find_error_api(const gpufi_object *object, error_api *api) {
  const wanted symbols[] = {
      {"H5Epush2", &api->push},
      {"H5Ecreate_stack", &api->create_stack},
      {"H5Eset_current_stack", &api->set_current_stack},
      {"H5E_ERR_CLS_g", &api->class_id},
      {"H5E_PLINE_g", &api->major},
      {"H5E_CANTFILTER_g", &api->minor},
  };
  const wanted in_newer[] = {{"H5Eis_paused", &api->is_paused}};
  find_symbols(object, in_newer, COUNT_OF(in_newer));
  return find_symbols(object, symbols, COUNT_OF(symbols)) == COUNT_OF(symbols);
}

static void push(const error_api *api, hid_t stack, const char *text) {
  api->push(stack, "gpufetch", "gpufetch filter", 0, *api->class_id, *api->major, *api->minor, "%s",
            text);
}

void gpufi_caller_push_error(const void *return_address, const char *text) {
  error_api api;
  gpufi_object library;
  bool paused = false;
  if (!gpufi_object_open(&library, return_address)) {
    return;
  }
  if (find_error_api(&library, &api)) {
    if (!api.is_paused || api.is_paused(H5E_DEFAULT, &paused) < 0 || !paused) {
      push(&api, H5E_DEFAULT, text);
    } else {
      const hid_t stack = api.create_stack();
      if (stack >= 0) {
        push(&api, stack, text);
        api.set_current_stack(stack); /* closes it */
      }
    }
  }
  gpufi_object_close(&library);
}
