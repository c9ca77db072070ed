#include "comm/request.h"

#include <string.h>

const char *gpufi_op_name(int op) {
  static const char *const names[OP_LAST + 1] = {
      [OP_NONE] = "",
      [OP_LIST] = "list",
      [OP_READ] = "read",
      [OP_OVERVIEW] = "overview",
      [OP_STATS] = "stats",
      [OP_HISTOGRAM] = "histogram",
      [OP_SUBSCRIBE] = "subscribe",
      [OP_SHARE] = "share",
      [OP_UNSHARE] = "unshare",
      [OP_CANCEL] = "cancel",
  };
  return names[op];
}

const char *gpufi_method_name(int method) {
  static const char *const names[GPUF_OVERVIEW_FIRST + 1] = {
      [0] = "",
      [GPUF_OVERVIEW_MEAN] = "mean",
      [GPUF_OVERVIEW_RMS] = "rms",
      [GPUF_OVERVIEW_MIN] = "min",
      [GPUF_OVERVIEW_MAX] = "max",
      [GPUF_OVERVIEW_MINMAX] = "minmax",
      [GPUF_OVERVIEW_FIRST] = "first",
  };
  return names[method];
}

bool gpufi_token_equal(const gpufi_token *a, const gpufi_token *b) {
  return a->kind == b->kind && a->integer == b->integer && strcmp(a->text, b->text) == 0;
}
