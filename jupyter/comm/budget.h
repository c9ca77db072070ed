/* The memory that replies may take, counted. A budget outlives the dispatcher until the last reply
 * is freed. Thread-safety: any thread; no locks. */
#ifndef GPUFI_COMM_BUDGET_H
#define GPUFI_COMM_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct gpufi_budget {
  size_t max_nbytes; /* constant */
  atomic_size_t used_nbytes;
  atomic_int reference_count; /* the dispatcher and each reply */
} gpufi_budget;

/* With one reference; NULL where there is no memory. */
gpufi_budget *gpufi_budget_create(size_t max_nbytes);
void gpufi_budget_unref(gpufi_budget *budget);

/* Set aside the most that one reply takes, while the reply is made; false if the budget does not
 * allow it. Each success is followed by one gpufi_budget_unreserve. */
bool gpufi_budget_reserve(gpufi_budget *budget);
void gpufi_budget_unreserve(gpufi_budget *budget);

/* Count a reply that is made, whatever the limit, and hold a reference for it. */
void gpufi_budget_add(gpufi_budget *budget, size_t nbytes);
void gpufi_budget_remove(gpufi_budget *budget, size_t nbytes);

#endif
