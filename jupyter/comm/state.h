/* What makes up a dispatcher. Each member that has a lock has its own; none is held while another
 * is taken. */
#ifndef GPUFI_COMM_STATE_H
#define GPUFI_COMM_STATE_H

#include "comm/budget.h"
#include "comm/clients.h"
#include "comm/dispatcher.h"
#include "comm/queue.h"
#include "comm/registry.h"
#include "comm/shares.h"
#include "comm/steps.h"
#include "comm/values.h"

struct gpufi_dispatcher {
  gpufi_dispatcher_options options; /* with the defaults filled in; constant */
  char server_name[64];             /* constant */
  char instance[17]; /* random, constant: tells a client that the server has started anew */
  gpufi_budget *budget;
  gpufi_registry *registry;
  gpufi_values values;
  gpufi_clients clients;
  gpufi_shares shares;
  gpufi_queues queues;
  gpufi_steps steps;
  atomic_bool is_serving_step; /* a thread runs requests for a step; others leave it to that one */
  int64_t step_next_ns;        /* that thread's: when requests may be run again */
  atomic_uint_least64_t request_count, error_count;
  atomic_uint logged_codes; /* a bit for each gpufi_code */
};

#endif
