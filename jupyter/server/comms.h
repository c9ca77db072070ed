/* Comms between clients and the dispatcher (comm/comm.h): which are open, whose message a reply
 * answers, and the thread that runs what waits. */
#ifndef GPUFI_SERVER_COMMS_H
#define GPUFI_SERVER_COMMS_H

#include "comm/comm.h"
#include "server/wire.h"

#include <pthread.h>
#include <stdatomic.h>

struct gpufi_answer;
struct gpufi_open_comm;

typedef struct gpufi_comms {
  gpufi_comm *dispatcher;
  struct gpuf_server *server;

  pthread_t worker;
  pthread_mutex_t lock; /* guards what follows, up to the blank line */
  pthread_cond_t changed;
  bool has_work, is_stopping, is_running;
  struct gpufi_answer *answers, **answers_end; /* for the server's thread to send */

  /* The server's thread's. */
  struct gpufi_open_comm *open; /* the one used last comes first */
  int32_t open_count, open_max;
  size_t full_nbytes; /* with so many in replies under way, requests may have to wait */
  uint64_t tag_count;
  int32_t request_count; /* that wait for a reply */
  uint64_t watched_release_count;
  int64_t held_until_ns; /* no answers are sent before */
  int64_t watched_ns;    /* since when that many replies have been released; 0 = not watched */

  atomic_uint_least64_t release_count; /* of replies that ZeroMQ has sent or dropped */
} gpufi_comms;

/* Make the dispatcher. */
gpuf_status gpufi_comms_init(gpufi_comms *comms, struct gpuf_server *server,
                             const gpufi_comm_options *options, gpuf_error *err);
gpuf_status gpufi_comms_start(gpufi_comms *comms, gpuf_error *err); /* the worker */
void gpufi_comms_stop(gpufi_comms *comms);
/* After the sockets are closed. Waits for importers of shares as gpufi_comm_destroy does. */
gpuf_status gpufi_comms_fini(gpufi_comms *comms, gpuf_error *err);

/* --- On the server's thread -------------------------------------------------------- */

/* comm_open, comm_msg, comm_close. True if a reply will follow, and idle with it. */
bool gpufi_comms_open(gpufi_comms *comms, gpufi_message *message);
bool gpufi_comms_submit(gpufi_comms *comms, gpufi_message *message);
bool gpufi_comms_close(gpufi_comms *comms, gpufi_message *message);
/* Those that the message's session opened, with a comm_close for each. */
void gpufi_comms_close_session(gpufi_comms *comms, const gpufi_message *message);
/* All that are left, when the server stops. */
void gpufi_comms_close_all(gpufi_comms *comms);
/* {comm_id: {"target_name": ...}}, of one target or, if it is NULL, all. */
json_t *gpufi_comms_list(const gpufi_comms *comms, const char *target);
/* Send what the dispatcher has answered, if anything. */
void gpufi_comms_send_answers(gpufi_comms *comms);
/* True once requests wait and no reply has gone out for long: subscribers that read nothing hold
 * all the memory that replies may take, and are to be dropped. To be asked every second while
 * request_count > 0. */
bool gpufi_comms_are_stuck(gpufi_comms *comms);

#endif
