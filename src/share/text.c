/* A share's handle as text: a prefix and the bytes in base64url without padding. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "share/handle.h"

static const char prefix[] = "gpufetch-share:1:";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

_Static_assert(sizeof(prefix) + (size_t)(GPUF_SHARE_HANDLE_MAX_NBYTES + 2) / 3 * 4 <=
                   GPUF_SHARE_TEXT_MAX_NBYTES,
               "text size");

gpuf_status gpuf_share_to_text(const gpuf_share_handle *handle, char *text, gpuf_error *err) {
  GPUFI_REQUIRE(text, err);
  const gpuf_status status = gpufi_share_decode(handle, NULL, err);
  if (status != GPUF_OK) {
    return status;
  }
  char *end = text + sprintf(text, "%s", prefix);
  uint32_t bits = 0;
  int bit_count = 0;
  for (uint32_t i = 0; i < handle->nbytes; i++) {
    bits = bits << 8 | handle->bytes[i];
    for (bit_count += 8; bit_count >= 6; bit_count -= 6) {
      *end++ = digits[bits >> (bit_count - 6) & 63];
    }
  }
  if (bit_count > 0) {
    *end++ = digits[bits << (6 - bit_count) & 63];
  }
  *end = '\0';
  return GPUF_OK;
}

static bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

static gpuf_status decode_digits(const char *text, gpuf_share_handle *handle, gpuf_error *err) {
  uint32_t bits = 0;
  int bit_count = 0;
  for (; *text && !is_space(*text); text++) {
    const char *digit = strchr(digits, *text);
    if (!digit) {
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                        "the share handle's text has the byte 0x%02x, which base64url has not; "
                        "copy it again",
                        (unsigned char)*text);
    }
    bits = (bits << 6 | (uint32_t)(digit - digits)) & 0xffff;
    bit_count += 6;
    if (bit_count >= 8) {
      bit_count -= 8;
      if (handle->nbytes == GPUF_SHARE_HANDLE_MAX_NBYTES) {
        return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                          "the share handle's text is longer than any handle; copy it alone");
      }
      handle->bytes[handle->nbytes++] = (uint8_t)(bits >> bit_count);
    }
  }
  /* A handle has exactly one text: the bits that are left over are zeros, and fewer than a digit
   * has. */
  if (bit_count >= 6 || (bits & ((1u << bit_count) - 1)) != 0) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the share handle's text is cut off; copy all of it");
  }
  while (is_space(*text)) {
    text++;
  }
  if (*text) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the share handle's text is followed by more; copy it alone");
  }
  return GPUF_OK;
}

gpuf_status gpuf_share_from_text(const char *text, gpuf_share_handle *handle, gpuf_error *err) {
  GPUFI_REQUIRE(text, err);
  GPUFI_REQUIRE(handle, err);
  gpuf_share_handle decoded = {0};
  while (is_space(*text)) {
    text++;
  }
  if (strncmp(text, prefix, sizeof(prefix) - 1) != 0) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "this text is no share handle of this version: it does not begin with "
                      "\"%s\"; pass the whole text that the sharing process gave",
                      prefix);
  }
  gpuf_status status = decode_digits(text + sizeof(prefix) - 1, &decoded, err);
  if (status == GPUF_OK) {
    status = gpufi_share_decode(&decoded, NULL, err);
  }
  if (status == GPUF_OK) {
    *handle = decoded;
  }
  return status;
}
