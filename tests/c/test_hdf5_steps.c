/* Chunks behind shuffle, deflate and fletcher32: they come back, and untrusted bytes do no harm. */
#include "guarded.h"
#include "hdf5/inflate.h"
#include "hdf5/steps.h"
#include "test.h"

static gpuf_error err;

#define SHUFFLE(nbytes) {GPUFI_H5_STEP_SHUFFLE, nbytes}
#define DEFLATE {GPUFI_H5_STEP_DEFLATE, 0}
#define FLETCHER32 {GPUFI_H5_STEP_FLETCHER32, 0}

/* A chunk of the format's words, written by hand, in at most this many bytes. */
#define CHUNK_NBYTES_MAX 4096

typedef struct chunk {
  uint8_t data[CHUNK_NBYTES_MAX];
  size_t nbytes;
} chunk;

static chunk ramp(size_t nbytes) {
  chunk made = {.nbytes = nbytes};
  for (size_t i = 0; i < nbytes; i++) {
    made.data[i] = (uint8_t)(i * 37 + i / 256);
  }
  return made;
}

static chunk shuffled(const chunk *raw, size_t element_nbytes) {
  chunk made = *raw;
  const size_t count = raw->nbytes / element_nbytes;
  for (size_t i = 0; i < count; i++) {
    for (size_t b = 0; b < element_nbytes; b++) {
      made.data[b * count + i] = raw->data[i * element_nbytes + b];
    }
  }
  return made;
}

/* A zlib stream that stores its bytes. */
static chunk stored(const chunk *raw) {
  uint32_t a = 1, b = 0;
  chunk made = {.data = {0x78, 0x01, 1}, .nbytes = raw->nbytes + 11};
  const uint16_t nbytes = (uint16_t)raw->nbytes;
  const uint8_t sizes[] = {(uint8_t)nbytes, (uint8_t)(nbytes >> 8), (uint8_t)~nbytes,
                           (uint8_t)(~nbytes >> 8)};
  memcpy(made.data + 3, sizes, sizeof(sizes));
  memcpy(made.data + 7, raw->data, raw->nbytes);
  for (size_t i = 0; i < raw->nbytes; i++) {
    a = (a + raw->data[i]) % 65521;
    b = (b + a) % 65521;
  }
  const uint8_t sum[] = {(uint8_t)(b >> 8), (uint8_t)b, (uint8_t)(a >> 8), (uint8_t)a};
  memcpy(made.data + 7 + raw->nbytes, sum, sizeof(sum));
  return made;
}

static chunk summed(const chunk *raw) {
  chunk made = *raw;
  uint32_t low = 0, high = 0;
  for (size_t i = 0; i < raw->nbytes; i += 2) {
    const uint32_t second = i + 1 < raw->nbytes ? raw->data[i + 1] : 0;
    low = (low + ((uint32_t)raw->data[i] << 8) + second) % 65535;
    high = (high + low) % 65535;
  }
  /* Not 0 in the format unless all bytes are: a ramp never is. */
  low = low ? low : 65535;
  high = high ? high : 65535;
  const uint8_t sum[] = {(uint8_t)low, (uint8_t)(low >> 8), (uint8_t)high, (uint8_t)(high >> 8)};
  memcpy(made.data + made.nbytes, sum, sizeof(sum));
  made.nbytes += sizeof(sum);
  return made;
}

static gpuf_status decode(const gpufi_h5_steps *steps, uint32_t mask, const chunk *encoded,
                          chunk *raw) {
  if (!gpufi_inflate_name()) {
    SKIP("neither libdeflate.so.0 nor libz.so.1 is installed");
  }
  guarded in = guarded_alloc(encoded->nbytes, 1), out = guarded_alloc(raw->nbytes, 1);
  guarded scratch = guarded_alloc(gpufi_h5_steps_scratch_nbytes(raw->nbytes), 1);
  memcpy(in.data, encoded->data, encoded->nbytes);
  const gpuf_status status = gpufi_h5_steps_decode(steps, mask, in.data, encoded->nbytes, out.data,
                                                   raw->nbytes, scratch.data, &err);
  memcpy(raw->data, out.data, raw->nbytes);
  guarded_free(&in);
  guarded_free(&out);
  guarded_free(&scratch);
  return status;
}

static void check(const gpufi_h5_steps *steps, uint32_t mask, const chunk *encoded,
                  const chunk *raw) {
  chunk back = {.nbytes = raw->nbytes};
  CHECK_OK(decode(steps, mask, encoded, &back));
  CHECK(memcmp(back.data, raw->data, raw->nbytes) == 0);
}

static void chunks_of_every_size_come_back(void) {
  for (uint32_t element_nbytes = 1; element_nbytes <= 17; element_nbytes++) {
    for (size_t nbytes = 1; nbytes < 700; nbytes += nbytes < 70 ? 1 : 29) {
      const chunk raw = ramp(nbytes);
      const chunk planes = shuffled(&raw, element_nbytes);
      const chunk stream = stored(&planes);
      const chunk whole = summed(&stream);
      const gpufi_h5_steps all = {3, {SHUFFLE(element_nbytes), DEFLATE, FLETCHER32}};
      check(&all, 0, &whole, &raw);
      check(&all, 4, &stream, &raw);
      check(&all, 6, &planes, &raw);
      check(&all, 7, &raw, &raw);
    }
  }
}

static void steps_in_another_order_come_back(void) {
  const chunk raw = ramp(1000);
  const chunk sum = summed(&raw);
  const chunk stream = stored(&sum);
  const gpufi_h5_steps sum_first = {2, {FLETCHER32, DEFLATE}};
  check(&sum_first, 0, &stream, &raw);
  check(&sum_first, 2, &sum, &raw);
  const chunk once = stored(&raw), twice = stored(&once);
  const chunk planes = shuffled(&twice, 4), again = shuffled(&planes, 2);
  const gpufi_h5_steps odd = {4, {DEFLATE, DEFLATE, SHUFFLE(4), SHUFFLE(2)}};
  check(&odd, 0, &again, &raw);
}

static void a_checksum_of_old_releases_is_taken(void) {
  const gpufi_h5_steps steps = {1, {FLETCHER32}};
  const chunk raw = ramp(999);
  chunk whole = summed(&raw);
  for (size_t i = 999; i < 1003; i += 2) {
    const uint8_t byte = whole.data[i];
    whole.data[i] = whole.data[i + 1];
    whole.data[i + 1] = byte;
  }
  check(&steps, 0, &whole, &raw);
}

static void damage_is_refused(void) {
  const gpufi_h5_steps all = {3, {SHUFFLE(4), DEFLATE, FLETCHER32}};
  const gpufi_h5_steps deflate = {1, {DEFLATE}};
  const chunk raw = ramp(400);
  const chunk planes = shuffled(&raw, 4);
  const chunk stream = stored(&planes);
  const chunk whole = summed(&stream);
  chunk back = {.nbytes = 400};
  for (size_t at = 0; at < whole.nbytes; at++) {
    chunk altered = whole;
    altered.data[at] ^= (uint8_t)(1 << at % 8);
    CHECK_FAILS(decode(&all, 0, &altered, &back), GPUF_ERR_CORRUPT, "checksum");
    altered = whole;
    altered.nbytes = at;
    CHECK(decode(&all, 0, &altered, &back) == GPUF_ERR_CORRUPT);
  }
  for (size_t nbytes = 1; nbytes < stream.nbytes; nbytes++) {
    chunk cut = stream;
    cut.nbytes = nbytes;
    CHECK_FAILS(decode(&deflate, 0, &cut, &back), GPUF_ERR_CORRUPT, "no deflate stream");
  }
}

static void another_size_is_refused(void) {
  const gpufi_h5_steps deflate = {1, {DEFLATE}}, plain = {1, {SHUFFLE(4)}}, none = {0, {DEFLATE}};
  const chunk raw = ramp(400);
  const chunk stream = stored(&raw);
  chunk longer = {.nbytes = 401}, shorter = {.nbytes = 399};
  CHECK_FAILS(decode(&deflate, 0, &stream, &longer), GPUF_ERR_CORRUPT,
              "decodes to 400 bytes instead of the chunk's 401");
  CHECK_FAILS(decode(&deflate, 0, &stream, &shorter), GPUF_ERR_CORRUPT, "one of more than");
  CHECK_FAILS(decode(&plain, 0, &raw, &shorter), GPUF_ERR_CORRUPT, "more than the 399");
  CHECK_FAILS(decode(&plain, 1, &raw, &longer), GPUF_ERR_CORRUPT, "400 bytes instead of");
  CHECK_FAILS(decode(&none, 0, &raw, &longer), GPUF_ERR_CORRUPT, "400 bytes instead of");
}

static void bytes_behind_a_stream_are_left_alone(void) {
  const gpufi_h5_steps deflate = {1, {DEFLATE}};
  const chunk raw = ramp(400);
  chunk stream = stored(&raw);
  stream.nbytes += 5;
  check(&deflate, 0, &stream, &raw);
}

int main(void) {
  TEST(chunks_of_every_size_come_back);
  TEST(steps_in_another_order_come_back);
  TEST(a_checksum_of_old_releases_is_taken);
  TEST(damage_is_refused);
  TEST(another_size_is_refused);
  TEST(bytes_behind_a_stream_are_left_alone);
  return test_finish();
}
