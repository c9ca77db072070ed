#include "base/text.h"

/* The bytes of the character at `s`; 0 if none begins there, -1 if the text ends within it. */
static int character_nbytes(const unsigned char *s) {
  const int nbytes = s[0] < 0x80                   ? 1
                     : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                     : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
                     : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                   : 0;
  /* The bounds of the second byte leave out longer forms than needed, surrogates, and numbers
   * above U+10FFFF. */
  unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
  unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
  for (int i = 1; i < nbytes; i++) {
    if (s[i] == '\0') {
      return -1;
    }
    if (s[i] < low || s[i] > high) {
      return 0;
    }
    low = 0x80;
    high = 0xbf;
  }
  return nbytes;
}

void gpufi_text_make_utf8(char *text) {
  while (*text) {
    const int nbytes = character_nbytes((const unsigned char *)text);
    if (nbytes < 0) {
      *text = '\0';
      return;
    }
    if (nbytes == 0) {
      *text = '?';
    }
    text += nbytes > 0 ? nbytes : 1;
  }
}

bool gpufi_text_is_utf8(const char *text) {
  while (*text) {
    const int nbytes = character_nbytes((const unsigned char *)text);
    if (nbytes <= 0) {
      return false;
    }
    text += nbytes;
  }
  return true;
}
