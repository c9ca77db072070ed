#include "comm/budget.h"

#include "comm/protocol.h"

#include <stdlib.h>

#define REPLY_MOST_NBYTES (GPUFI_REPLY_MAX_NBYTES + GPUFI_REPLY_JSON_MAX_NBYTES)

gpufi_budget *gpufi_budget_create(size_t max_nbytes) {
  gpufi_budget *budget = calloc(1, sizeof(*budget));
  if (budget) {
    budget->max_nbytes = max_nbytes;
    atomic_init(&budget->reference_count, 1);
  }
  return budget;
}

void gpufi_budget_unref(gpufi_budget *budget) {
  if (atomic_fetch_sub(&budget->reference_count, 1) == 1) {
    free(budget);
  }
}

bool gpufi_budget_reserve(gpufi_budget *budget) {
  const size_t before = atomic_fetch_add(&budget->used_nbytes, REPLY_MOST_NBYTES);
  if (before + REPLY_MOST_NBYTES > budget->max_nbytes) {
    gpufi_budget_unreserve(budget);
    return false;
  }
  return true;
}

void gpufi_budget_unreserve(gpufi_budget *budget) {
  atomic_fetch_sub(&budget->used_nbytes, REPLY_MOST_NBYTES);
}

void gpufi_budget_add(gpufi_budget *budget, size_t nbytes) {
  atomic_fetch_add(&budget->reference_count, 1);
  atomic_fetch_add(&budget->used_nbytes, nbytes);
}

void gpufi_budget_remove(gpufi_budget *budget, size_t nbytes) {
  atomic_fetch_sub(&budget->used_nbytes, nbytes);
  gpufi_budget_unref(budget);
}
