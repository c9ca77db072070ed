/* What a server reads and writes of ZMTP, as a publisher and as a router. */
#include "server/zmtp.h"

#include <string.h>

#include "test.h"

#define GREETING_OF(version, mechanism) "\xff\0\0\0\0\0\0\0\0\x7f" version mechanism
#define NULL_MECHANISM "NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define FILLER "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define GREETING GREETING_OF("\3\0", NULL_MECHANISM) FILLER
#define FRAME_MAX_NBYTES 65536 /* of a message to a router */
#define READY "\4\x19\5READY\13Socket-Type\0\0\0\3SUB"

/* A constant text with the zeros in it, but without the one at its end. */
#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

/* Read all of it, `step` bytes at a time, and write of each event its kind as a digit, its data and
 * a space. False where the bytes are refused. */
static bool read_piece(gpufi_zmtp_reader *reader, const uint8_t *data, size_t nbytes, char **told) {
  gpufi_zmtp_event event;
  do {
    if (!gpufi_zmtp_read(reader, &data, &nbytes, &event)) {
      return false;
    }
    if (event.kind != GPUFI_ZMTP_NOTHING) {
      *told += sprintf(*told, "%d%.*s%s ", (int)event.kind, (int)event.nbytes,
                       (const char *)event.data, event.more ? "+" : "");
    }
  } while (event.kind != GPUFI_ZMTP_NOTHING);
  CHECK(nbytes == 0);
  return true;
}

static bool read_as(gpufi_zmtp_role role, const uint8_t *data, size_t nbytes, size_t step,
                    char *told) {
  gpufi_zmtp_reader reader = {.role = role, .frame_max_nbytes = FRAME_MAX_NBYTES};
  bool done = true;
  *told = '\0';
  for (size_t start = 0; start < nbytes && done; start += step) {
    done = read_piece(&reader, data + start, nbytes - start < step ? nbytes - start : step, &told);
  }
  gpufi_zmtp_reader_fini(&reader);
  return done;
}

static bool read_in_steps(const uint8_t *data, size_t nbytes, size_t step, char *told) {
  return read_as(GPUFI_ZMTP_PUBLISHER, data, nbytes, step, told);
}

static bool reads(const uint8_t *data, size_t nbytes, char *told) {
  return read_in_steps(data, nbytes, nbytes, told);
}

static void a_subscriber_is_understood_however_its_bytes_are_cut(void) {
  static const char sent[] = GREETING READY "\0\2\1a"                /* a subscription to "a" */
                                            "\0\1\1"                 /* to everything */
                                            "\2\0\0\0\0\0\0\0\3\1bc" /* to "bc", in a long frame */
                                            "\0\2\0a"                /* "a" is taken back */
                                            "\4\x0b\11SUBSCRIBEx"
                                            "\4\10\6CANCELx"
                                            "\4\7\6CANCEL" /* by commands */
                                            "\4\10\4PING\0\1p"
                                            "\0\0"
                                            "\1\2hi"
                                            "\4\2\1z"; /* and what means nothing here */
  char told[256];
  for (size_t step = 1; step < sizeof(sent); step++) {
    CHECK(read_in_steps(BYTES(sent), step, told));
    CHECK(strcmp(told, "1 2 3a 3 3bc 4a 3x 4x 4 5p 7 7hi 7\1z ") == 0);
  }
}

static void what_comes_from_no_subscriber_is_refused(void) {
  char told[256];
  CHECK(reads(BYTES(GREETING READY), told) && strcmp(told, "1 2 ") == 0);
  CHECK(reads(BYTES(GREETING "\4\x1a\5READY\13SOCKET-type\0\0\0\4XSUB"), told));
  CHECK(reads(BYTES(GREETING_OF("\3\1", NULL_MECHANISM) FILLER READY), told));
  CHECK(reads(BYTES(GREETING "\4\x23\5READY\10Identity\0\0\0\0\13Socket-Type\0\0\0\3SUB"), told) ==
        false); /* the size of the frame is wrong by three */
  CHECK(reads(BYTES(GREETING "\4\x26\5READY\10Identity\0\0\0\0\13Socket-Type\0\0\0\3SUB"), told));
  CHECK(!reads(BYTES(GREETING_OF("\1\0", NULL_MECHANISM) FILLER), told));
  CHECK(!reads(BYTES(GREETING_OF("\3\0", "CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0") FILLER), told));
  CHECK(!reads(BYTES("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a browser of any kind\r\n"),
               told));
  CHECK(!reads(BYTES(GREETING "\4\x1b\5READY\13Socket-Type\0\0\0\5DEALE"), told));
  CHECK(!reads(BYTES(GREETING "\0\x19\5READY\13Socket-Type\0\0\0\3SUB"), told)); /* no command */
  CHECK(!reads(BYTES(GREETING "\4\6\5READY"), told));
  CHECK(!reads(BYTES(GREETING "\4\x19\5READX\13Socket-Type\0\0\0\3SUB"), told));
  CHECK(!reads(BYTES(GREETING "\4\x19\5READY\13Socket-Type\0\0\0\4SUB"), told)); /* one too long */
  CHECK(!reads(BYTES(GREETING "\4\x19\5READY\13Socket-Type\xff\xff\xff\xffSUB"), told));
  CHECK(!reads(BYTES(GREETING "\4\7\5READY\x0b"), told));
  CHECK(!reads(BYTES(GREETING "\4\0"), told));
}

static void a_frame_is_no_larger_than_the_limit(void) {
  static char sent[sizeof(GREETING READY) + 9 + GPUFI_ZMTP_SMALL_MAX_NBYTES + 1] = GREETING READY;
  char told[2 * sizeof(sent)];
  uint8_t *const frame = (uint8_t *)sent + sizeof(GREETING READY) - 1;
  const size_t before = sizeof(GREETING READY) - 1;
  memset(frame, 'x', 9 + GPUFI_ZMTP_SMALL_MAX_NBYTES);
  memcpy(frame, "\2\0\0\0\0\0\0\4\0\1", 10);
  CHECK(reads((uint8_t *)sent, before + 9 + GPUFI_ZMTP_SMALL_MAX_NBYTES, told));
  CHECK(strncmp(told, "1 2 3xxx", 8) == 0 && strlen(told) == 4 + 1 + 1023 + 1);
  memcpy(frame, "\2\0\0\0\0\0\0\4\1", 9);
  CHECK(!reads((uint8_t *)sent, before + 9, told));
  memcpy(frame, "\2\xff\xff\xff\xff\xff\xff\xff\xff", 9);
  CHECK(!reads((uint8_t *)sent, before + 9, told));
  memcpy(frame, "\x08\0", 2); /* a flag that there is not */
  CHECK(!reads((uint8_t *)sent, before + 2, told));
}

#define READY_OF(size, name) "\4" size "\5READY\13Socket-Type\0\0\0" name

static bool reads_as_router(const uint8_t *data, size_t nbytes, char *told) {
  return read_as(GPUFI_ZMTP_ROUTER, data, nbytes, nbytes, told);
}

static void a_client_of_a_router_is_understood_however_its_bytes_are_cut(void) {
  static const char sent[] = GREETING READY_OF(
      "\x29", "\6DEALER\10Identity\0\0\0\0") "\1\2hi"
                                             "\0\0"                  /* a message of two frames */
                                             "\3\0\0\0\0\0\0\0\3abc" /* in a long frame */
                                             "\4\10\4PING\0\1p"      /* between frames */
                                             "\0\2\1a"
                                             "\4\7\6CANCEL"; /* what means nothing here */
  char told[256];
  for (size_t step = 1; step < sizeof(sent); step++) {
    CHECK(read_as(GPUFI_ZMTP_ROUTER, BYTES(sent), step, told));
    CHECK(strcmp(told, "1 2 6hi+ 6 6abc+ 5p 6\1a 7\6CANCEL ") == 0);
  }
}

static void a_client_of_a_router_says_who_it_is(void) {
  char told[256];
  CHECK(reads_as_router(BYTES(GREETING READY_OF("\x1c", "\6DEALER")), told));
  CHECK(reads_as_router(BYTES(GREETING READY_OF("\x19", "\3REQ")), told));
  CHECK(reads_as_router(BYTES(GREETING READY_OF("\x1c", "\6ROUTER")), told));
  CHECK(!reads_as_router(BYTES(GREETING READY_OF("\x19", "\3SUB")), told));
  CHECK(!reads(BYTES(GREETING READY_OF("\x1c", "\6DEALER")), told));
  CHECK(reads_as_router(BYTES(GREETING READY_OF("\x2b", "\6DEALER\10Identity\0\0\0\2me")), told));
  CHECK(strcmp(told, "1 2me ") == 0);
  /* An identity that a client cannot choose. */
  CHECK(!reads_as_router(BYTES(GREETING READY_OF("\x2b", "\6DEALER\10Identity\0\0\0\2\0e")), told));
  static char longest[sizeof(GREETING) - 1 + 9 + 41 + 256] = GREETING;
  char *const ready = longest + sizeof(GREETING) - 1;
  static const char body[] = "\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0";
  memset(ready, 'i', 9 + 41 + 256);
  for (int nbytes = 255; nbytes <= 256; nbytes++) {
    char large[1024];
    const size_t body_nbytes = sizeof(body) - 1 + 2 + (size_t)nbytes;
    memcpy(ready, "\6\0\0\0\0\0\0\1", 8);
    ready[8] = (char)(body_nbytes - 256);
    memcpy(ready + 9, body, sizeof(body) - 1);
    ready[9 + sizeof(body) - 1] = (char)(nbytes >> 8);
    ready[9 + sizeof(body)] = (char)nbytes;
    CHECK(reads_as_router((uint8_t *)longest, sizeof(GREETING) - 1 + 9 + body_nbytes, large) ==
          (nbytes == 255));
  }
}

static void a_frame_to_a_router_is_no_larger_than_the_limit(void) {
  static char told[FRAME_MAX_NBYTES + 64];
  static char frame[FRAME_MAX_NBYTES];
  gpufi_zmtp_reader reader = {.role = GPUFI_ZMTP_ROUTER, .frame_max_nbytes = FRAME_MAX_NBYTES};
  char *at = told;
  memset(frame, 'x', sizeof(frame));
  CHECK(read_piece(&reader, BYTES(GREETING READY_OF("\x1c", "\6DEALER")), &at));
  CHECK(read_piece(&reader, BYTES("\2\0\0\0\0\0\1\0\0"), &at));
  CHECK(reader.capacity < 100); /* what is only announced takes no memory */
  CHECK(read_piece(&reader, (uint8_t *)frame, 1000, &at) && reader.capacity < 2100);
  CHECK(read_piece(&reader, (uint8_t *)frame, sizeof(frame) - 1000, &at));
  CHECK(strlen(told) == 5 + FRAME_MAX_NBYTES + 1 && told[4] == '6');
  CHECK(read_piece(&reader, BYTES("\0\1y"), &at) && reader.capacity < 100);
  CHECK(!read_piece(&reader, BYTES("\2\0\0\0\0\0\1\0\1"), &at));
  gpufi_zmtp_reader_fini(&reader);
  gpufi_zmtp_reader other = {.role = GPUFI_ZMTP_ROUTER, .frame_max_nbytes = FRAME_MAX_NBYTES};
  at = told;
  CHECK(read_piece(&other, BYTES(GREETING READY_OF("\x1c", "\6DEALER")), &at));
  CHECK(!read_piece(&other, BYTES("\6\0\0\0\0\0\0\4\1"), &at)); /* a command */
  gpufi_zmtp_reader_fini(&other);
}

static void a_ping_is_answered_by_its_context(void) {
  uint8_t pong[GPUFI_ZMTP_PONG_MAX_NBYTES];
  const gpufi_zmtp_event none = {GPUFI_ZMTP_PING, false, BYTES("")};
  const gpufi_zmtp_event some = {GPUFI_ZMTP_PING, false, BYTES("abc")};
  const gpufi_zmtp_event many = {GPUFI_ZMTP_PING, false, BYTES("0123456789abcdefghi")};
  CHECK(gpufi_zmtp_pong(pong, &none) == 7 && memcmp(pong, "\4\5\4PONG", 7) == 0);
  CHECK(gpufi_zmtp_pong(pong, &some) == 10 && memcmp(pong, "\4\10\4PONGabc", 10) == 0);
  CHECK(gpufi_zmtp_pong(pong, &many) == 23);
  CHECK(memcmp(pong, "\4\x15\4PONG0123456789abcdef", 23) == 0);
  char told[64];
  /* One that does not say for how long it is valid is none. */
  CHECK(reads(BYTES(GREETING READY "\4\6\4PINGa\4\7\4PING\0\1"), told));
  CHECK(strcmp(told, "1 2 7\4PINGa 5 ") == 0);
}

static void a_header_says_the_size_and_whether_more_follows(void) {
  uint8_t header[GPUFI_ZMTP_HEADER_MAX_NBYTES];
  CHECK(gpufi_zmtp_header(header, 0, false) == 2 && memcmp(header, "\0\0", 2) == 0);
  CHECK(gpufi_zmtp_header(header, 255, true) == 2 && memcmp(header, "\1\xff", 2) == 0);
  CHECK(gpufi_zmtp_header(header, 256, false) == 9);
  CHECK(memcmp(header, "\2\0\0\0\0\0\0\1\0", 9) == 0);
  CHECK(gpufi_zmtp_header(header, UINT64_C(0x0102030405060708), true) == 9);
  CHECK(memcmp(header, "\3\1\2\3\4\5\6\7\10", 9) == 0);
}

int main(void) {
  TEST(a_subscriber_is_understood_however_its_bytes_are_cut);
  TEST(what_comes_from_no_subscriber_is_refused);
  TEST(a_frame_is_no_larger_than_the_limit);
  TEST(a_client_of_a_router_is_understood_however_its_bytes_are_cut);
  TEST(a_client_of_a_router_says_who_it_is);
  TEST(a_frame_to_a_router_is_no_larger_than_the_limit);
  TEST(a_ping_is_answered_by_its_context);
  TEST(a_header_says_the_size_and_whether_more_follows);
  return test_finish();
}
