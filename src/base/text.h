/* Text that must be UTF-8: messages, and names that were cut to fit. Thread-safety: any thread. */
#ifndef GPUFI_BASE_TEXT_H
#define GPUFI_BASE_TEXT_H

#include <stdbool.h>

/* Make the NUL-terminated `text` UTF-8 in place: a character that its end cuts off is removed, and
 * any other byte that belongs to no character becomes '?'. */
void gpufi_text_make_utf8(char *text);

/* Whether the NUL-terminated `text` is UTF-8. */
bool gpufi_text_is_utf8(const char *text);

#endif
