#include "hdf5/path.h"

#include "base/error.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* In a file of HDF5's oldest format, a name that is some bytes longer than 65,500 makes the message
 * of its link too long, and the file cannot be opened any more. */
#define NAME_MAX_NBYTES 60000

/* What is wrong with the `nbytes` bytes between two slashes; NULL if nothing is. */
static const char *fault_of(const char *component, size_t nbytes) {
  if (nbytes == 0) {
    return "has an empty name beside a slash";
  }
  if (strspn(component, ".") >= nbytes && nbytes <= 2) {
    return nbytes == 1 ? "has the name '.' in it" : "has the name '..' in it";
  }
  return NULL;
}

static gpuf_status check(const char *name, gpuf_error *err) {
  const char *fault = gpufi_text_is_utf8(name) ? NULL : "is not UTF-8";
  for (const char *at = name + (*name == '/'); !fault;) {
    const size_t nbytes = strcspn(at, "/");
    if (nbytes > NAME_MAX_NBYTES) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the dataset's name has %zu bytes without a slash, of at most %d: give a "
                        "shorter one",
                        nbytes, NAME_MAX_NBYTES);
    }
    fault = fault_of(at, nbytes);
    if (!at[nbytes]) {
      break;
    }
    at += nbytes + 1;
  }
  return fault ? gpufi_fail(err, GPUF_ERR_INVALID, 0,
                            "the dataset's name '%s' %s: give names like 'group/x'", name, fault)
               : GPUF_OK;
}

gpuf_status gpufi_h5_path_init(gpufi_h5_path *path, const char *name, gpuf_error *err) {
  memset(path, 0, sizeof(*path));
  const gpuf_status status = check(name, err);
  if (status != GPUF_OK) {
    return status;
  }
  path->text = strdup(name);
  return path->text ? GPUF_OK
                    : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a name of %zu bytes",
                                 strlen(name));
}

void gpufi_h5_path_fini(gpufi_h5_path *path) {
  free(path->text);
  path->text = NULL;
}

/* What the link `name` leads to; NULL if it is a group, in which there can be others. */
static const char *not_a_group(const gpufi_h5_api *api, hid_t location, const char *name) {
  const hid_t object = api->Oopen(location, name, H5P_DEFAULT);
  const H5I_type_t type = object < 0 ? H5I_BADID : api->Iget_type(object);
  if (object >= 0) {
    api->Idec_ref(object);
  }
  return type == H5I_GROUP      ? NULL
         : type == H5I_DATASET  ? "a dataset"
         : type == H5I_DATATYPE ? "a named datatype"
                                : "a link to nothing that can be opened";
}

gpuf_status gpufi_h5_path_look(gpufi_h5_path *path, gpufi_h5_session *session, hid_t location,
                               gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  gpuf_status status = GPUF_OK;
  bool exists = true;
  path->existing_nbytes = path->text[0] == '/';
  for (char *slash = path->text + 1; exists && (slash = strchr(slash, '/')); slash++) {
    *slash = '\0';
    exists = api->Lexists(location, path->text, H5P_DEFAULT) > 0;
    const char *other = exists ? not_a_group(api, location, path->text) : NULL;
    if (other) {
      exists = false;
      status = gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "'%s' in the name '%s/%s' is %s, not a group: choose another name",
                          path->text, path->text, slash + 1, other);
    }
    *slash = '/';
    if (exists) {
      path->existing_nbytes = (size_t)(slash - path->text);
    }
  }
  const gpuf_status looked =
      gpufi_h5_fail_if_refused(session, err, "looking for the groups of '%s' failed", path->text);
  return looked == GPUF_OK ? status : looked;
}

static herr_t stop_at_first(hid_t location, const char *name, const H5A_info_t *info, void *arg) {
  return 1;
}

/* Another thread may have put something there while this one wrote. */
static bool is_empty_group(const gpufi_h5_api *api, hid_t location, const char *name) {
  H5G_info_t info;
  const hid_t group = api->Gopen2(location, name, H5P_DEFAULT);
  bool is_empty = false;
  if (group >= 0) {
    is_empty = api->Gget_info(group, &info) >= 0 && info.nlinks == 0 &&
               api->Aiterate2(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, stop_at_first, NULL) == 0;
    api->Idec_ref(group);
  }
  return is_empty;
}

void gpufi_h5_path_withdraw(gpufi_h5_path *path, gpufi_h5_session *session, hid_t location) {
  const gpufi_h5_api *api = session->api;
  bool is_gone = api->Lexists(location, path->text, H5P_DEFAULT) <= 0 ||
                 api->Ldelete(location, path->text, H5P_DEFAULT) >= 0;
  char *slash;
  while (is_gone && (slash = strrchr(path->text, '/')) &&
         (size_t)(slash - path->text) > path->existing_nbytes) {
    *slash = '\0';
    is_gone = api->Lexists(location, path->text, H5P_DEFAULT) <= 0 ||
              (is_empty_group(api, location, path->text) &&
               api->Ldelete(location, path->text, H5P_DEFAULT) >= 0);
  }
  gpufi_h5_discard_errors(session);
}
