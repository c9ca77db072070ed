#include "server/kernel.h"

#include "comm/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void handler(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message);

#define BANNER_NBYTES 512

static void banner(const gpufi_kernel *kernel, char text[BANNER_NBYTES]) {
  snprintf(text, BANNER_NBYTES,
           "gpufetch %s serves the tensors of '%s' (process %" PRId64 ").\n"
           "It runs no code. In a notebook: import gpufetch; run = gpufetch.connect('%s')\n",
           gpuf_version(), kernel->connection->name, kernel->connection->process_id,
           kernel->connection->name);
}

static void kernel_info(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  char text[BANNER_NBYTES];
  banner(kernel, text);
  gpufi_endpoint_reply(kernel->endpoint, socket, message, "kernel_info_reply",
                       json_pack("{ss ss ss ss s{ss ss ss ss} ss s[]s[]}", "status", "ok",
                                 "protocol_version", "5.4", "implementation", "gpufetch",
                                 "implementation_version", gpuf_version(), "language_info", "name",
                                 "gpufetch", "version", gpuf_version(), "mimetype", "text/plain",
                                 "file_extension", ".txt", "banner", text, "help_links",
                                 "supported_features"));
}

static void connect_info(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  json_t *content = json_pack("{ss}", "status", "ok");
  for (int i = 0; i < GPUFI_SOCKET_COUNT && content; i++) {
    char name[32];
    snprintf(name, sizeof(name), "%s_port", gpufi_socket_names[i]);
    gpufi_json_put(&content, name, json_integer(kernel->connection->ports[i]));
  }
  gpufi_endpoint_reply(kernel->endpoint, socket, message, "connect_reply", content);
}

static void comm_info(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  const json_t *target = json_object_get(message->content, "target_name");
  gpufi_endpoint_reply(kernel->endpoint, socket, message, "comm_info_reply",
                       json_pack("{ss so}", "status", "ok", "comms",
                                 gpufi_bridge_list(kernel->bridge, json_string_value(target))));
}

static void is_complete(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  gpufi_endpoint_reply(kernel->endpoint, socket, message, "is_complete_reply",
                       json_pack("{ss}", "status", "complete"));
}

static void history(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  gpufi_endpoint_reply(kernel->endpoint, socket, message, "history_reply",
                       json_pack("{ss s[]}", "status", "ok", "history"));
}

static void complete(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  json_int_t cursor = json_integer_value(json_object_get(message->content, "cursor_pos"));
  gpufi_endpoint_reply(kernel->endpoint, socket, message, "complete_reply",
                       json_pack("{ss s[] sI sI s{}}", "status", "ok", "matches", "cursor_start",
                                 cursor, "cursor_end", cursor, "metadata"));
}

static void inspect(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  gpufi_endpoint_reply(
      kernel->endpoint, socket, message, "inspect_reply",
      json_pack("{ss sb s{} s{}}", "status", "ok", "found", 0, "data", "metadata"));
}

static void interrupt(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  gpufi_endpoint_reply(kernel->endpoint, socket, message, "interrupt_reply",
                       json_pack("{ss}", "status", "ok"));
}

bool gpufi_kernel_shut_down(gpufi_kernel *kernel) {
  if (kernel->shutdown && !kernel->was_shut_down) {
    kernel->was_shut_down = true;
    kernel->shutdown(kernel->shutdown_arg);
  }
  return kernel->shutdown != NULL;
}

/* Whether a request was meant for the program that had the same addresses before this one: where
 * that was killed, ZeroMQ holds the manager's request and hands it to the next. */
static bool is_of_the_past(const gpufi_kernel *kernel, const gpufi_message *message) {
  int64_t time_ns;
  return kernel->is_managed && gpufi_message_time(message, &time_ns) &&
         time_ns < kernel->launch_time_ns;
}

/* A program is told of a shutdown request only if it asked for that; and of one that is to start it
 * again only if its kernel manager can do so. */
static void shut_down(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  const bool restart = json_is_true(json_object_get(message->content, "restart"));
  gpufi_endpoint_reply(kernel->endpoint, socket, message, "shutdown_reply",
                       json_pack("{ss sb}", "status", "ok", "restart", restart));
  gpufi_bridge_close_session(kernel->bridge, message);
  if ((!restart || kernel->is_managed) && !is_of_the_past(kernel, message)) {
    gpufi_kernel_shut_down(kernel);
  }
}

/* --- Execute ------------------------------------------------------------------- */

/* `exit`, `quit`, as they are or called. */
static bool asks_to_leave(const char *code) {
  static const char *const words[] = {"exit", "quit", "exit()", "quit()"};
  const size_t start = strspn(code, " \t\n");
  const size_t nbytes = strcspn(code + start, " \t\n;");
  const bool ends = code[start + nbytes + strspn(code + start + nbytes, " \t\n;")] == '\0';
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && ends; i++) {
    if (nbytes == strlen(words[i]) && strncmp(code + start, words[i], nbytes) == 0) {
      return true;
    }
  }
  return false;
}

/* Code is not run: whatever it is, a console shows what this kernel is. */
static void show_execution(gpufi_kernel *kernel, const gpufi_message *message, const char *code) {
  char text[BANNER_NBYTES + 64];
  gpufi_dispatcher_counts counts;
  banner(kernel, text);
  gpufi_dispatcher_get_counts(kernel->bridge->dispatcher, &counts);
  snprintf(text + strlen(text), 64, "Tensors published: %d. `exit` detaches.\n",
           (int)counts.tensor_count);
  gpufi_endpoint_publish(
      kernel->endpoint, "execute_input", "execute_input", message->header,
      json_pack("{ss sI}", "code", code, "execution_count", (json_int_t)kernel->execution_count));
  gpufi_endpoint_publish(kernel->endpoint, "stream.stdout", "stream", message->header,
                         json_pack("{ss ss}", "name", "stdout", "text", text));
}

static void execute(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  const json_t *silent = json_object_get(message->content, "silent");
  const json_t *store = json_object_get(message->content, "store_history");
  const char *code = json_string_value(json_object_get(message->content, "code"));
  const bool leaves = code && asks_to_leave(code);
  json_t *payload =
      leaves ? json_pack("[{ss sb}]", "source", "ask_exit", "keepkernel", 1) : json_array();
  if (!json_is_true(silent)) {
    kernel->execution_count += !json_is_false(store);
    if (code && !leaves && code[strspn(code, " \t\n")]) {
      show_execution(kernel, message, code);
    }
  }
  gpufi_endpoint_reply(kernel->endpoint, socket, message, "execute_reply",
                       json_pack("{ss sI so s{}}", "status", "ok", "execution_count",
                                 (json_int_t)kernel->execution_count, "payload", payload,
                                 "user_expressions"));
}

/* --- Messages that cannot be read ---------------------------------------------- */

/* A reply of the type that belongs to a request; `type` ends in "_request". */
static void refuse(gpufi_kernel *kernel, gpufi_socket socket, const gpufi_message *message) {
  char type[GPUFI_WIRE_ID_MAX_NBYTES + 1];
  const size_t stem_nbytes = strlen(message->type) - strlen("_request");
  snprintf(type, sizeof(type), "%.*s_reply", (int)stem_nbytes, message->type);
  gpufi_endpoint_reply(kernel->endpoint, socket, message, type,
                       json_pack("{ss ss ss s[] sI}", "status", "error", "ename", "ValueError",
                                 "evalue", message->problem, "traceback", "execution_count",
                                 (json_int_t)kernel->execution_count));
}

/* --- Dispatch ------------------------------------------------------------------ */

static const struct {
  const char *type;
  handler *handle;
} handlers[] = {
    {"kernel_info_request", kernel_info}, {"comm_info_request", comm_info},
    {"execute_request", execute},         {"is_complete_request", is_complete},
    {"history_request", history},         {"complete_request", complete},
    {"inspect_request", inspect},         {"interrupt_request", interrupt},
    {"shutdown_request", shut_down},      {"connect_request", connect_info},
};

static const struct {
  const char *type;
  bool (*handle)(gpufi_bridge *bridge, gpufi_message *message);
} comm_handlers[] = {
    {"comm_open", gpufi_bridge_open},
    {"comm_msg", gpufi_bridge_submit},
    {"comm_close", gpufi_bridge_close},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* As with ipykernel, an unknown type is answered by busy and idle and nothing else. */
void gpufi_kernel_handle(gpufi_kernel *kernel, gpufi_socket socket, gpufi_message *message) {
  bool is_answered_later = false;
  if (message->problem) {
    gpufi_endpoint_log(kernel->endpoint, message->problem);
  }
  gpufi_endpoint_status(kernel->endpoint, message->header, "busy");
  for (size_t i = 0; i < COUNT(handlers); i++) {
    if (strcmp(message->type, handlers[i].type) == 0) {
      (message->problem ? refuse : handlers[i].handle)(kernel, socket, message);
    }
  }
  for (size_t i = 0; i < COUNT(comm_handlers); i++) {
    if (strcmp(message->type, comm_handlers[i].type) == 0) {
      is_answered_later = comm_handlers[i].handle(kernel->bridge, message);
    }
  }
  if (!is_answered_later) {
    gpufi_endpoint_status(kernel->endpoint, message->header, "idle");
  }
}
