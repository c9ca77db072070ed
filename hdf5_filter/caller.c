#include "caller.h"

#include <dlfcn.h>
#include <string.h>

typedef struct owner {
  void *handle; /* from dlopen; closed again by owner_close */
  void *base;   /* where the object is loaded */
} owner;

static bool owner_open(owner *o, const void *return_address) {
  Dl_info info;
  if (!dladdr(return_address, &info) || info.dli_fname == NULL) {
    return false;
  }
  o->base = info.dli_fbase;
  o->handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (o->handle == NULL) { /* the program itself goes by no name */
    o->handle = dlopen(NULL, RTLD_LAZY);
  }
  return o->handle != NULL;
}

/* dlsym also searches what the object depends on; only its own symbols count. */
static void *owner_symbol(const owner *o, const char *name) {
  Dl_info info;
  void *address = dlsym(o->handle, name);
  if (address == NULL || !dladdr(address, &info) || info.dli_fbase != o->base) {
    return NULL;
  }
  return address;
}

bool gpufi_caller_find(const void *return_address, gpufi_caller *caller) {
  const struct {
    const char *name;
    void *slot; /* of a pointer to function, filled through memcpy */
  } wanted[] = {
      {"H5Pget_chunk", &caller->get_chunk},
      {"H5Pget_filter_by_id2", &caller->get_filter},
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
  owner o;
  bool found = true;
  if (!owner_open(&o, return_address)) {
    return false;
  }
  for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && found; i++) {
    void *address = owner_symbol(&o, wanted[i].name);
    found = address != NULL;
    memcpy(wanted[i].slot, &address, sizeof(address));
  }
  dlclose(o.handle);
  return found;
}

void gpufi_caller_push_error(const void *return_address, const char *text) {
  typedef herr_t (*push_function)(hid_t, const char *, const char *, unsigned, hid_t, hid_t, hid_t,
                                  const char *, ...);
  owner o;
  if (!owner_open(&o, return_address)) {
    return;
  }
  void *address = owner_symbol(&o, "H5Epush2");
  const hid_t *class_id = owner_symbol(&o, "H5E_ERR_CLS_g");
  const hid_t *major = owner_symbol(&o, "H5E_PLINE_g");
  const hid_t *minor = owner_symbol(&o, "H5E_CANTFILTER_g");
  if (address && class_id && major && minor) {
    push_function push;
    memcpy(&push, &address, sizeof(push));
    push(H5E_DEFAULT, "gpufetch", "gpufetch filter", 0, *class_id, *major, *minor, "%s", text);
  }
  dlclose(o.handle);
}
