/* A second process for the tests of sharing: the test's own executable, started with "--worker". It
 * reads commands from stdin, a line each, and answers each with a line: "ok ..." or a status and
 * a message.
 *
 *   share KIND NBYTES SEED   -> ok TEXT      allocate on device 0 of that kind, fill, share
 *   attach TEXT              -> ok NUMBER
 *   hash NUMBER                -> ok HEX       of the elements, fetched in C order
 *   fill NUMBER BYTE           -> ok           write every element
 *   check NUMBER, detach NUMBER  -> ok
 *   cycle TEXT COUNT         -> ok           attach and detach again and again
 *   resources                -> ok DESCRIPTORS THREADS
 *   setuid UID               -> ok
 *   ask TEXT                 -> ok ANSWER    what the service answers, whoever asks
 *   fork                     -> ok PID       a child that was refused an attachment and stays
 */
#ifndef GPUFI_TEST_SHARE_WORKER_H
#define GPUFI_TEST_SHARE_WORKER_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices.h"
#include "share/wire.h"

#define LINE_NBYTES (GPUF_SHARE_TEXT_MAX_NBYTES + GPUF_ERROR_MESSAGE_NBYTES)
#define ATTACHMENTS_MAX 256

/* FNV-1a of the elements in C order. */
static inline gpuf_status tensor_hash(const gpuf_tensor *tensor, uint64_t *hash, gpuf_error *err) {
  const size_t nbytes = gpuf_tensor_nbytes(tensor);
  unsigned char *bytes = malloc(nbytes + 1);
  gpuf_tensor packed;
  gpuf_status status =
      gpuf_tensor_init(&packed, bytes, cpu_device, tensor->dtype, tensor->ndim, tensor->shape, err);
  if (status == GPUF_OK) {
    status = gpuf_copy(&packed, tensor, NULL, err);
  }
  *hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < nbytes; i++) {
    *hash = (*hash ^ bytes[i]) * 0x100000001b3u;
  }
  free(bytes);
  return status;
}

static inline int count_entries(const char *folder) {
  DIR *listing = opendir(folder);
  int count = 0;
  while (readdir(listing)) {
    count++;
  }
  closedir(listing);
  return count;
}

/* Read a line of at most LINE_NBYTES, which its writer has written at once; false at the end. */
static inline bool get_line(char *line, FILE *file) {
  do {
    clearerr(file);
    errno = 0;
    if (fgets(line, LINE_NBYTES, file)) {
      return true;
    }
  } while (errno == EINTR);
  return false;
}

/* A connection to a handle's service that knows nothing of the protocol; -1 if nobody listens. */
static inline int raw_connect(const gpuf_share_handle *handle) {
  gpufi_share_fields fields;
  struct sockaddr_un address;
  if (gpufi_share_decode(handle, &fields, NULL) != GPUF_OK) {
    return -1;
  }
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const socklen_t nbytes = gpufi_share_address(fields.service, &address);
  while (connect(fd, (struct sockaddr *)&address, nbytes) != 0) {
    if (errno != EINTR) {
      close(fd);
      return -1;
    }
  }
  return fd;
}

/* --- The worker's side --------------------------------------------------------- */

typedef struct worker_attachment {
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
} worker_attachment;

static worker_attachment worker_attachments[ATTACHMENTS_MAX];
static int worker_attachment_count;

static inline gpuf_status worker_share(char *args, char *answer, gpuf_error *err) {
  int kind;
  int64_t nbytes;
  unsigned long long seed;
  gpuf_share_handle handle;
  gpuf_tensor tensor, source;
  void *d_ptr;
  sscanf(args, "%d %ld %llu", &kind, &nbytes, &seed);
  const gpuf_device device = {(gpuf_device_kind)kind, 0};
  char *bytes = malloc((size_t)nbytes);
  fill_random(bytes, (size_t)nbytes, seed);
  gpuf_status status = gpuf_alloc(device, (size_t)nbytes, &d_ptr, err);
  if (status == GPUF_OK) {
    gpuf_tensor_init(&tensor, d_ptr, device, GPUF_DTYPE_UINT8, 1, &nbytes, err);
    gpuf_tensor_init(&source, bytes, cpu_device, GPUF_DTYPE_UINT8, 1, &nbytes, err);
    status = gpuf_copy(&tensor, &source, NULL, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_share(&tensor, NULL, &handle, err);
  }
  free(bytes);
  return status == GPUF_OK ? gpuf_share_to_text(&handle, answer, err) : status;
}

static inline gpuf_status worker_attach(const char *text, worker_attachment *attached,
                                        gpuf_error *err) {
  gpuf_share_handle handle;
  const gpuf_status status = gpuf_share_from_text(text, &handle, err);
  return status == GPUF_OK ? gpuf_attach(&handle, &attached->attachment, &attached->tensor, err)
                           : status;
}

static inline gpuf_status worker_cycle(char *args, gpuf_error *err) {
  char *count_text = strrchr(args, ' ');
  worker_attachment attached;
  gpuf_status status = GPUF_OK;
  *count_text++ = '\0';
  for (int i = atoi(count_text); i > 0 && status == GPUF_OK; i--) {
    status = worker_attach(args, &attached, err);
    if (status == GPUF_OK) {
      status = gpuf_detach(attached.attachment, err);
    }
  }
  return status;
}

static inline gpuf_status worker_fill(char *args, gpuf_error *err) {
  int number, byte;
  sscanf(args, "%d %d", &number, &byte);
  const gpuf_tensor *tensor = &worker_attachments[number].tensor;
  gpuf_tensor packed;
  void *bytes = malloc(gpuf_tensor_nbytes(tensor));
  memset(bytes, byte, gpuf_tensor_nbytes(tensor));
  gpuf_tensor_init(&packed, bytes, cpu_device, tensor->dtype, tensor->ndim, tensor->shape, err);
  const gpuf_status status = gpuf_copy(tensor, &packed, NULL, err);
  free(bytes);
  return status;
}

static inline gpuf_status worker_ask(const char *text, char *answer, gpuf_error *err) {
  gpuf_share_handle handle;
  gpufi_share_reply reply;
  const gpuf_status status = gpuf_share_from_text(text, &handle, err);
  const int fd = status == GPUF_OK ? raw_connect(&handle) : -1;
  if (fd >= 0 && TEMP_FAILURE_RETRY(recv(fd, &reply, sizeof(reply), 0)) == (ssize_t)sizeof(reply)) {
    sprintf(answer, "%d", reply.answer);
  } else {
    strcpy(answer, "none");
  }
  close(fd);
  return status;
}

/* The child inherits all that the worker has open. */
static inline void worker_fork(char *answer) {
  int ready[2];
  char refused = 0;
  const pid_t parent = getpid();
  if (pipe(ready) != 0) {
    return;
  }
  const pid_t child = fork();
  if (child == 0) {
    gpuf_error err;
    gpuf_share_handle handle = {0};
    gpuf_attachment *attachment;
    gpuf_tensor tensor;
    refused = gpuf_attach(&handle, &attachment, &tensor, &err) == GPUF_ERR_STATE &&
              (!worker_attachments[0].attachment ||
               gpuf_detach(worker_attachments[0].attachment, &err) == GPUF_ERR_STATE);
    if (write(ready[1], &refused, 1) == 1) {
      while (getppid() == parent) { /* the test kills it; this is for a test that fails */
        sleep(1);
      }
      sleep(20);
    }
    _exit(0);
  }
  if (TEMP_FAILURE_RETRY(read(ready[0], &refused, 1)) != 1 || !refused) {
    strcpy(answer, "0");
  } else {
    sprintf(answer, "%d", child);
  }
  close(ready[0]);
  close(ready[1]);
}

static inline gpuf_status worker_do(const char *verb, char *args, char *answer, gpuf_error *err) {
  if (strcmp(verb, "share") == 0) {
    return worker_share(args, answer, err);
  }
  if (strcmp(verb, "attach") == 0) {
    sprintf(answer, "%d", worker_attachment_count);
    const gpuf_status status =
        worker_attach(args, &worker_attachments[worker_attachment_count], err);
    worker_attachment_count += status == GPUF_OK;
    return status;
  }
  if (strcmp(verb, "hash") == 0) {
    uint64_t hash;
    const gpuf_status status = tensor_hash(&worker_attachments[atoi(args)].tensor, &hash, err);
    sprintf(answer, "%llx", (unsigned long long)hash);
    return status;
  }
  if (strcmp(verb, "fill") == 0) {
    return worker_fill(args, err);
  }
  if (strcmp(verb, "check") == 0) {
    return gpuf_attachment_check(worker_attachments[atoi(args)].attachment, err);
  }
  if (strcmp(verb, "detach") == 0) {
    return gpuf_detach(worker_attachments[atoi(args)].attachment, err);
  }
  if (strcmp(verb, "cycle") == 0) {
    return worker_cycle(args, err);
  }
  if (strcmp(verb, "resources") == 0) {
    sprintf(answer, "%d %d", count_entries("/proc/self/fd"), count_entries("/proc/self/task"));
  } else if (strcmp(verb, "setuid") == 0) {
    sprintf(answer, "%d", setuid((uid_t)atoi(args)));
  } else if (strcmp(verb, "ask") == 0) {
    return worker_ask(args, answer, err);
  } else if (strcmp(verb, "fork") == 0) {
    worker_fork(answer);
  }
  return GPUF_OK;
}

static inline int worker_main(void) {
  static char line[LINE_NBYTES], answer[LINE_NBYTES];
  gpuf_error err;
  while (get_line(line, stdin)) {
    line[strcspn(line, "\n")] = '\0';
    char *args = strchr(line, ' ');
    if (args) {
      *args++ = '\0';
    }
    answer[0] = '\0';
    if (worker_do(line, args ? args : line + strlen(line), answer, &err) == GPUF_OK) {
      printf("ok %s\n", answer);
    } else {
      printf("%s %s\n", gpuf_status_name(err.status), err.message);
    }
    fflush(stdout);
  }
  return 0;
}

/* --- The test's side ------------------------------------------------------------- */

typedef struct worker {
  pid_t pid;
  FILE *to, *from;
  char answer[LINE_NBYTES]; /* of the latest command */
} worker;

static inline worker worker_start(void) {
  worker w = {0};
  int to[2], from[2];
  CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
  w.pid = fork();
  CHECK(w.pid >= 0);
  if (w.pid == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    execl("/proc/self/exe", "test_share", "--worker", (char *)NULL);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  w.to = fdopen(to[1], "w");
  w.from = fdopen(from[0], "r");
  return w;
}

/* True if the command was done; w->answer is what came after "ok", or the failure. */
static inline bool worker_says_ok(worker *w, const char *command) {
  w->answer[0] = '\0';
  fprintf(w->to, "%s\n", command);
  fflush(w->to);
  if (!get_line(w->answer, w->from)) {
    return false;
  }
  w->answer[strcspn(w->answer, "\n")] = '\0';
  if (strncmp(w->answer, "ok ", 3) != 0) {
    return false;
  }
  memmove(w->answer, w->answer + 3, strlen(w->answer + 3) + 1);
  return true;
}

#define WORKER_OK(w, ...)                                                                          \
  do {                                                                                             \
    char command_[LINE_NBYTES];                                                                    \
    snprintf(command_, sizeof(command_), __VA_ARGS__);                                             \
    if (!worker_says_ok((w), command_)) {                                                          \
      printf("# %s:%d: %.60s gave %s\n", __FILE__, __LINE__, command_, (w)->answer);               \
      longjmp(test_exit, 1);                                                                       \
    }                                                                                              \
  } while (0)

/* The command fails, and the status and message contain both texts. */
#define WORKER_FAILS(w, status, text, ...)                                                         \
  do {                                                                                             \
    char command_[LINE_NBYTES];                                                                    \
    snprintf(command_, sizeof(command_), __VA_ARGS__);                                             \
    if (worker_says_ok((w), command_) || !strstr((w)->answer, (status)) ||                         \
        !strstr((w)->answer, (text))) {                                                            \
      printf("# %s:%d: %.60s gave %s\n", __FILE__, __LINE__, command_, (w)->answer);               \
      longjmp(test_exit, 1);                                                                       \
    }                                                                                              \
  } while (0)

static inline void worker_stop(worker *w) {
  fclose(w->to);
  fclose(w->from);
  TEMP_FAILURE_RETRY(waitpid(w->pid, NULL, 0));
}

/* As the kernel's out-of-memory killer does it. */
static inline void worker_kill(worker *w) {
  kill(w->pid, SIGKILL);
  worker_stop(w);
}

#endif
