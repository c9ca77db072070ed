#include "server/forked.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fork.h"
#include "server/address.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static gpufi_forked *servers;

static bool is_of_any(int fd) {
  for (const gpufi_forked *server = servers; server; server = server->next) {
    for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
      if (gpufi_address_is_of(server->connection, (gpufi_socket)i, fd)) {
        return true;
      }
    }
  }
  return false;
}

/* The number stays in use: what ZeroMQ's memory holds may not come to stand for another file. */
static void give_up(int fd, int empty_fd) {
  if (empty_fd < 0 || dup3(empty_fd, fd, O_CLOEXEC) < 0) {
    close(fd);
  }
}

/* Without /proc nothing is given up. readdir would ask for memory. */
static void give_all_up(void) {
  struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t nbytes;
    uint8_t kind;
    char name[];
  };
  _Alignas(8) char entries[4096];
  long nbytes;
  const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int empty_fd = folder < 0 ? -1 : eventfd(0, EFD_CLOEXEC);
  while (folder >= 0 && (nbytes = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0) {
    for (long at = 0; at < nbytes;) {
      const struct entry *found = (const struct entry *)(entries + at);
      const int64_t fd = gpufi_address_number(found->name, entries + nbytes);
      if (fd >= 0 && is_of_any((int)fd)) {
        give_up((int)fd, empty_fd);
      }
      at += found->nbytes;
    }
  }
  close(empty_fd);
  close(folder);
}

static void fork_prepare(void) {
  pthread_mutex_lock(&lock);
}

static void fork_parent(void) {
  pthread_mutex_unlock(&lock);
}

static void fork_child(void) {
  if (servers) {
    give_all_up();
  }
  servers = NULL;
  pthread_mutex_unlock(&lock);
}

GPUFI_AT_FORK(GPUFI_FORK_SHARE, fork_prepare, fork_parent, fork_child);

void gpufi_forked_watch(gpufi_forked *server, const gpufi_connection *connection) {
  pthread_mutex_lock(&lock);
  *server = (gpufi_forked){connection, servers};
  servers = server;
  pthread_mutex_unlock(&lock);
}

void gpufi_forked_unwatch(gpufi_forked *server) {
  pthread_mutex_lock(&lock);
  for (gpufi_forked **at = &servers; *at; at = &(*at)->next) {
    if (*at == server) {
      *at = server->next;
      break;
    }
  }
  pthread_mutex_unlock(&lock);
}
