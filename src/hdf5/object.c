#include "hdf5/object.h"

#include <string.h>

/* How H5O_info_t begins: up to 1.10 with an address, from 1.12 on with a token. */
typedef struct info_1 {
  unsigned long file_number;
  haddr_t address;
  int type;
  unsigned link_count;
} info_1;

typedef struct info_3 {
  unsigned long file_number;
  uint8_t token[16];
  int type;
  unsigned link_count;
} info_3;

typedef struct facts {
  unsigned long file_number;
  uint8_t place[16]; /* in the file */
  int64_t link_count;
} facts;

static bool look(const gpufi_h5_api *api, hid_t object, facts *found) {
  _Alignas(16) unsigned char bytes[GPUFI_H5_INFO_NBYTES];
  memset(found, 0, sizeof(*found));
  if (api->Oget_info3 && api->Oget_info3(object, bytes, GPUFI_H5O_INFO_BASIC) >= 0) {
    info_3 info;
    memcpy(&info, bytes, sizeof(info));
    found->file_number = info.file_number;
    memcpy(found->place, info.token, sizeof(info.token));
    found->link_count = info.link_count;
    return true;
  }
  if (!api->Oget_info3 && api->Oget_info1 && api->Oget_info1(object, bytes) >= 0) {
    info_1 info;
    memcpy(&info, bytes, sizeof(info));
    found->file_number = info.file_number;
    memcpy(found->place, &info.address, sizeof(info.address));
    found->link_count = info.link_count;
    return true;
  }
  return false;
}

/* In each release H5L_info_t begins with the type. */
static bool is_hard_link(const gpufi_h5_api *api, hid_t location, const char *name) {
  _Alignas(16) unsigned char bytes[GPUFI_H5_INFO_NBYTES];
  int type;
  if (!api->Lget_info || api->Lget_info(location, name, bytes, H5P_DEFAULT) < 0) {
    return false;
  }
  memcpy(&type, bytes, sizeof(type));
  return type == H5L_TYPE_HARD;
}

int64_t gpufi_h5_object_link_count(const gpufi_h5_session *session, hid_t object) {
  facts found;
  if (look(session->api, object, &found)) {
    return found.link_count;
  }
  session->api->Eclear2(H5E_DEFAULT);
  return -1;
}

bool gpufi_h5_object_is_at(gpufi_h5_session *session, hid_t object, hid_t location,
                           const char *name) {
  const gpufi_h5_api *const api = session->api;
  facts own, other;
  bool is_same = false;
  if (look(api, object, &own) && is_hard_link(api, location, name)) {
    const hid_t named = api->Oopen(location, name, H5P_DEFAULT);
    is_same = named >= 0 && look(api, named, &other) && own.file_number == other.file_number &&
              memcmp(own.place, other.place, sizeof(own.place)) == 0;
    gpufi_h5_close(session, named);
  }
  gpufi_h5_discard_errors(session);
  return is_same;
}
