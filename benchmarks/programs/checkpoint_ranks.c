#include "checkpoint_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static bool give(int fd, const void *bytes, size_t nbytes) {
  return TEMP_FAILURE_RETRY(send(fd, bytes, nbytes, MSG_NOSIGNAL)) == (ssize_t)nbytes;
}

static bool take(int fd, void *bytes, size_t nbytes) {
  return TEMP_FAILURE_RETRY(recv(fd, bytes, nbytes, MSG_WAITALL)) == (ssize_t)nbytes;
}

/* In the new process, which has no use for the links of the others. */
static void become(ranks *r, int rank, int link) {
  for (int other = 1; other < rank; other++) {
    close(r->links[other]);
  }
  r->rank = rank;
  r->links[0] = link;
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
}

bool ranks_fork(ranks *r, int count) {
  *r = (ranks){.count = count};
  for (int rank = 1; rank < count; rank++) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return false;
    }
    const pid_t child = fork();
    if (child < 0) {
      return false;
    }
    close(ends[child == 0 ? 0 : 1]);
    if (child == 0) {
      become(r, rank, ends[1]);
      return true;
    }
    r->links[rank] = ends[0];
  }
  return true;
}

/* Of all ranks' values, the minimum or the sum. */
static int64_t combine(const ranks *r, int64_t value, bool adds) {
  int64_t other;
  bool are_here = true;
  if (r->rank != 0) {
    return give(r->links[0], &value, sizeof(value)) && take(r->links[0], &value, sizeof(value))
               ? value
               : -1;
  }
  for (int rank = 1; rank < r->count; rank++) {
    are_here = take(r->links[rank], &other, sizeof(other)) && are_here;
    if (are_here && (adds || other < value)) {
      value = adds ? value + other : other;
    }
  }
  value = are_here ? value : -1;
  for (int rank = 1; rank < r->count; rank++) {
    give(r->links[rank], &value, sizeof(value));
  }
  return value;
}

int64_t ranks_min(void *arg, int64_t value) {
  return combine(arg, value, false);
}

int64_t ranks_sum(ranks *r, int64_t value) {
  return combine(r, value, true);
}

bool ranks_read_line(const ranks *r, char *line, size_t nbytes) {
  if (r->rank != 0) {
    return take(r->links[0], line, nbytes) && *line != '\0';
  }
  const bool is_read = fgets(line, (int)nbytes, stdin) != NULL;
  if (!is_read) {
    *line = '\0';
  }
  for (int rank = 1; rank < r->count; rank++) {
    give(r->links[rank], line, nbytes);
  }
  return is_read;
}

void ranks_leave(ranks *r) {
  for (int i = r->rank == 0 ? 1 : 0; i < (r->rank == 0 ? r->count : 1); i++) {
    if (r->links[i] >= 0) {
      close(r->links[i]);
    }
    r->links[i] = -1;
  }
}

bool ranks_end(ranks *r) {
  int outcome;
  bool all_ended_well = true;
  ranks_leave(r);
  while (r->rank == 0 && TEMP_FAILURE_RETRY(wait(&outcome)) >= 0) {
    all_ended_well = all_ended_well && outcome == 0;
  }
  return all_ended_well;
}
