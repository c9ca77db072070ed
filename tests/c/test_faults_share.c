/* Sharing memory between processes with the n-th call of a kind failing, for every n, in the
 * exporter and in the importer: what is seen through an attachment is right, whatever fails says
 * why, no share and no importer is left, and the next attempt works. */
#include <gpufetch/share.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "fault_tensors.h"

#define WAIT_NS INT64_C(15000000000) /* less than a case may take, more than any wait that ends */

/* --- Another process, in which nothing fails --------------------------------------------- */

typedef enum request_kind { ATTACH_AND_READ, GIVE_HANDLE } request_kind;

typedef struct request {
  request_kind what;
  gpuf_share_handle handle; /* to attach to */
} request;

typedef struct reply {
  gpuf_status status;
  bool right; /* the elements were `values` */
  gpuf_error error;
  gpuf_share_handle handle; /* of the process's own share, and who has attached to it */
  int32_t importer_count;
} reply;

static int other_fd = -1;

static gpuf_status read_share(const gpuf_share_handle *handle, bool *right) {
  gpuf_attachment *attachment;
  gpuf_tensor seen;
  gpuf_status status = gpuf_attach(handle, &attachment, &seen, &err);
  if (status != GPUF_OK) {
    return status;
  }
  const gpuf_tensor dst = fresh_result(ROWS, COLUMNS);
  status = gpuf_copy(&dst, &seen, NULL, &err);
  *right = is_whole(result);
  if (status == GPUF_OK) {
    status = gpuf_attachment_check(attachment, &err);
  }
  gpuf_error ended_error;
  const gpuf_status ended = gpuf_detach(attachment, &ended_error);
  if (status == GPUF_OK && ended != GPUF_OK) {
    err = ended_error;
  }
  return status == GPUF_OK ? ended : status;
}

/* Answer until the test has ended. */
static void be_the_other(int fd) {
  request asked;
  reply answer = {.status = GPUF_OK};
  prepare_tensors();
  CHECK_OK(gpuf_share(&d_source, NULL, &answer.handle, &err));
  while (read(fd, &asked, sizeof(asked)) == (ssize_t)sizeof(asked)) {
    answer.right = false;
    if (asked.what == ATTACH_AND_READ) {
      answer.status = read_share(&asked.handle, &answer.right);
      answer.error = err;
    }
    CHECK_OK(gpuf_share_importer_count(&answer.handle, &answer.importer_count, &err));
    CHECK(write(fd, &answer, sizeof(answer)) == (ssize_t)sizeof(answer));
  }
}

static void start_other(void) {
  int fds[2];
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
  fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    close(fds[0]);
    if (setjmp(test_exit) == 0) {
      be_the_other(fds[1]);
    }
    fflush(stdout);
    _exit(0);
  }
  close(fds[1]);
  other_fd = fds[0];
}

/* By calls that do not fail on demand. */
static reply ask_other(request asked) {
  const struct iovec out = {&asked, sizeof(asked)};
  reply answer;
  CHECK(writev(other_fd, &out, 1) == (ssize_t)sizeof(asked));
  CHECK(read(other_fd, &answer, sizeof(answer)) == (ssize_t)sizeof(answer));
  return answer;
}

/* The handle of the other's share, which nobody uses: what failed before has left no importer. */
static gpuf_share_handle handle_of_other(void) {
  const struct timespec pause = {0, 1000000};
  reply given = ask_other((request){.what = GIVE_HANDLE});
  for (int i = 0; i < 5000 && given.importer_count > 0; i++) { /* it may not have heard yet */
    nanosleep(&pause, NULL);
    given = ask_other((request){.what = GIVE_HANDLE});
  }
  CHECK(given.importer_count == 0);
  return given.handle;
}

/* --- Operations ----------------------------------------------------------------------------- */

/* The share ends, whatever has happened. */
static gpuf_status end(const gpuf_share_handle *handle, gpuf_status status) {
  gpuf_error ended_error;
  int32_t importers = -1;
  const gpuf_status ended = gpuf_unshare(handle, WAIT_NS, &importers, &ended_error);
  CHECK(ended != GPUF_OK || importers == 0);
  if (ended != GPUF_OK) { /* then it may be repeated */
    faults_disarm();
    CHECK_OK(gpuf_unshare(handle, WAIT_NS, NULL, &err));
  }
  if (status == GPUF_OK && ended != GPUF_OK) {
    err = ended_error;
  }
  return status == GPUF_OK ? ended : status;
}

static gpuf_status share_and_attach(bool *right) {
  gpuf_share_handle handle, again;
  gpuf_attachment *attachment;
  gpuf_tensor seen;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES];
  gpuf_status status = gpuf_share(&d_source, NULL, &handle, &err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpuf_share_to_text(&handle, text, &err);
  if (status == GPUF_OK) {
    status = gpuf_share_from_text(text, &again, &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_attach(&again, &attachment, &seen, &err);
  }
  if (status == GPUF_OK) {
    *right = seen.data == d_source.data;
    status = gpuf_detach(attachment, &err);
  }
  return end(&handle, status);
}

static gpuf_status share_with_another(bool *right) {
  request asked = {.what = ATTACH_AND_READ};
  int32_t importers = -1;
  gpuf_status status = gpuf_share(&d_source, NULL, &asked.handle, &err);
  if (status != GPUF_OK) {
    return status;
  }
  const reply answer = ask_other(asked);
  *right = answer.right;
  if (answer.status != GPUF_OK) { /* a thread of this process has failed; the other is told so */
    const bool told = answer.error.message[0] != 0;
    err = (gpuf_error){.status = answer.status};
    snprintf(err.message, sizeof(err.message), "%s: %.900s", told ? "injected" : "untold",
             answer.error.message);
    status = answer.status;
  } else {
    status = gpuf_share_importer_count(&asked.handle, &importers, &err);
  }
  return end(&asked.handle, status);
}

static int release_count;

static void count_release(void *arg) {
  __atomic_add_fetch(&release_count, 1, __ATOMIC_SEQ_CST);
}

/* The copy is the share's own, and the tensor's memory is not needed any more. */
static gpuf_status share_a_copy(bool *right) {
  const gpuf_share_options options = {
      .struct_nbytes = sizeof(gpuf_share_options), .copy = true, .release = count_release};
  request asked = {.what = ATTACH_AND_READ};
  release_count = 0;
  gpuf_status status = gpuf_share(&d_source, &options, &asked.handle, &err);
  if (status != GPUF_OK) {
    CHECK(release_count == 0);
    return status;
  }
  faults_disarm(); /* above it is the exporter that fails; here, the sharing itself */
  const reply answer = ask_other(asked);
  *right = answer.right;
  status = end(&asked.handle, answer.status);
  CHECK(release_count == 1);
  return status;
}

static gpuf_status attach_to_another(bool *right) {
  const gpuf_share_handle handle = handle_of_other();
  return read_share(&handle, right);
}

/* Two at once use one connection and one mapping. */
static gpuf_status attach_twice(bool *right) {
  const gpuf_share_handle handle = handle_of_other();
  gpuf_attachment *attachment;
  gpuf_tensor seen;
  gpuf_status status = gpuf_attach(&handle, &attachment, &seen, &err);
  if (status == GPUF_OK) {
    status = read_share(&handle, right);
    gpuf_error ended_error;
    const gpuf_status ended = gpuf_detach(attachment, &ended_error);
    if (status == GPUF_OK && ended != GPUF_OK) {
      err = ended_error;
      status = ended;
    }
  }
  return status;
}

static const operation operations[] = {
    {"share and attach", share_and_attach, false},
    {"share with another process", share_with_another, false},
    {"share a copy", share_a_copy, false},
    {"attach to another process", attach_to_another, false},
    {"attach to another process twice", attach_twice, true},
};

int main(void) {
  fill_values();
  test_run("another process is there", start_other);
  return run_operations(operations, sizeof(operations) / sizeof(operations[0]), prepare_tensors);
}
