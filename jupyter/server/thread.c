/* The server's thread: it serves all sockets, and does nothing that takes long. */
#include "base/clock.h"
#include "base/text.h"
#include "server/inside.h"
#include "server/server.h"
#include "server/topics.h"
#include "server/wake.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* While messages wait for replies, or there is a parent to watch. */
#define WATCH_MS 1000
/* What has waited so long for a subscriber is not waited for, if others wait for that. Longer than
 * the system waits for one that takes nothing (GPUFI_STALL_MAX_MS). */
#define STALLED_NS INT64_C(8000000000)

static bool handle_request(void *arg, gpufi_socket which, const gpufi_frame *frames, size_t count) {
  gpuf_server *server = arg;
  gpufi_message message;
  gpuf_error err;
  const gpuf_status status =
      gpufi_message_parse(server->endpoint.session, frames, count, &message, &err);
  if (status != GPUF_OK) {
    gpufi_endpoint_log(&server->endpoint, err.message);
    return status == GPUF_ERR_NO_MEMORY;
  }
  if (which != GPUFI_STDIN) { /* this kernel asks for no input */
    gpufi_kernel_handle(&server->kernel, which, &message);
  }
  gpufi_message_fini(&message);
  return true;
}

/* Tell a new subscriber that its subscription has arrived. What is not UTF-8 is no topic of a
 * message. */
static void welcome(void *arg, const char *topic, size_t nbytes) {
  gpuf_server *server = arg;
  char text[GPUFI_TOPIC_MAX_NBYTES + 1];
  snprintf(text, sizeof(text), "%.*s", (int)nbytes, topic);
  if (gpufi_text_is_utf8(text)) {
    gpufi_endpoint_publish(&server->endpoint, text, "iopub_welcome", NULL,
                           json_pack("{ss}", "subscription", text));
  }
}

static void log_line(void *arg, const char *line) {
  gpuf_server *server = arg;
  gpufi_endpoint_log(&server->endpoint, line);
}

/* A program that was started as a kernel ends with its kernel manager, as ipykernel does: it is
 * told by its shutdown callback or, where it has none, by SIGTERM. */
static void watch_parent(gpuf_server *server, int64_t *next_ns) {
  const int64_t now_ns = gpufi_clock_ns();
  if (now_ns < *next_ns) {
    return;
  }
  *next_ns = now_ns + WATCH_MS * INT64_C(1000000);
  if (gpufi_parent_has_ended(&server->parent)) {
    server->parent.process_id = 0;
    gpufi_endpoint_log(&server->endpoint,
                       "the kernel manager that started this program has ended, and so it ends");
    if (!gpufi_kernel_shut_down(&server->kernel)) {
      kill(getpid(), SIGTERM);
    }
  }
}

/* Subscribers that read nothing, or too slowly, hold all the memory that replies may take, and
 * others wait for it. */
static void cut_stalled_subscribers(gpuf_server *server) {
  const int64_t released_ns = gpufi_bridge_released_ns(&server->bridge);
  if (gpufi_bridge_is_short(&server->bridge) &&
      gpufi_sockets_cut_stalled(&server->endpoint.sockets, GPUFI_IOPUB,
                                gpufi_clock_ns() - STALLED_NS, released_ns)) {
    gpufi_bridge_hold(&server->bridge);
    gpufi_endpoint_log(&server->endpoint,
                       "subscribers that read nothing, or too slowly, were disconnected");
  }
}

void *gpufi_server_main(void *arg) {
  gpuf_server *server = arg;
  const gpufi_events events = {handle_request, welcome, log_line, server};
  int64_t watch_next_ns = 0;
  gpufi_inside inside;
  gpufi_inside_enter(&inside, server);
  while (!atomic_load(&server->is_stopping)) {
    const bool is_waiting = server->bridge.pending_count > 0;
    const bool is_watching = is_waiting || server->parent.process_id;
    if (gpufi_sockets_serve(&server->endpoint.sockets, server->wake_fd, is_watching ? WATCH_MS : -1,
                            &events)) {
      gpufi_wake_drain(server->wake_fd);
    }
    watch_parent(server, &watch_next_ns);
    if (is_waiting) {
      cut_stalled_subscribers(server);
    }
    gpufi_bridge_send_answers(&server->bridge);
  }
  gpufi_bridge_close_all(&server->bridge);
  gpufi_inside_leave(&inside);
  return NULL;
}
