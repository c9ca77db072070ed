#include "server/inside.h"

static _Thread_local const gpufi_inside *innermost;

void gpufi_inside_enter(gpufi_inside *inside, const gpuf_server *server) {
  *inside = (gpufi_inside){server, innermost};
  innermost = inside;
}

void gpufi_inside_leave(const gpufi_inside *inside) {
  innermost = inside->outer;
}

bool gpufi_inside_of(const gpuf_server *server) {
  const gpufi_inside *inside = innermost;
  while (inside && inside->server != server) {
    inside = inside->outer;
  }
  return inside != NULL;
}
