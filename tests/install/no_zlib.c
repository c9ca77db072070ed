/* Stands for zlib where a libhdf5 needs one to be loaded, and no test uses it. */
#include <stdlib.h>

#define ABSENT(name)                                                                               \
  void name(void);                                                                                 \
  void name(void) {                                                                                \
    abort();                                                                                       \
  }

ABSENT(compress2)
ABSENT(compressBound)
ABSENT(inflate)
ABSENT(inflateEnd)
ABSENT(inflateInit_)
