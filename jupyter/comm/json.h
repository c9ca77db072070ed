/* JSON values: making those that JSON has no notation for, quoting untrusted ones in messages, and
 * looking at untrusted text before it is parsed.
 *
 * A function that makes a value gives a new reference, or NULL where there is no memory.
 * Thread-safety: any thread, each with values of its own. */
#ifndef GPUFI_COMM_JSON_H
#define GPUFI_COMM_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number; NaN and infinities become "nan", "inf" and "-inf". */
json_t *gpufi_json_f64(double value);
/* A number; from 2^63 on a string of its digits. */
json_t *gpufi_json_u64(uint64_t value);
json_t *gpufi_json_shape(const int64_t *shape, int32_t count);
/* A string of text that may not be UTF-8: a byte that belongs to no character becomes '?'. */
json_t *gpufi_json_text(const char *text);

/* Add to an object or an array. Takes over `value`. Where there is no memory, or `value` is NULL
 * for want of it, the whole is given up and becomes NULL, so that nothing goes out without a
 * member; adding to NULL is allowed. */
void gpufi_json_put(json_t **object, const char *key, json_t *value);
void gpufi_json_append(json_t **array, json_t *value);
/* The text of a value, which the caller frees; NULL where there is no memory or `value` is NULL.
 * Unlike json_dumps of jansson 2.14, it never leaves out a key that there was no memory for. */
char *gpufi_json_dump(const json_t *value, size_t flags);

#define GPUFI_SHOWN_NBYTES 100

/* Write a client's value as a message quotes it: its JSON in ASCII, cut to what fits. `text` holds
 * GPUFI_SHOWN_NBYTES. Gives `text`. */
const char *gpufi_json_show(const json_t *value, char *text);

/* The index from 1 to `last` whose name the value is; 0 if it is none of them. */
int gpufi_json_choice(const json_t *value, int last, const char *(*name_of)(int index));

/* A string of 1 to `max_nbytes` printable ASCII characters. */
bool gpufi_json_is_plain(const json_t *value, size_t max_nbytes);

/* Whether brackets outside strings nest deeper than `depth_max`. jansson recurses as deep as its
 * input nests, so this is asked first. Text that is no JSON gets some answer: the parser refuses
 * it. */
bool gpufi_json_text_is_deeper(const char *text, size_t nbytes, int depth_max);

#endif
