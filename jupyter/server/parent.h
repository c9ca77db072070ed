/* The kernel manager that started this program, and whether it still lives: a program that is
 * started as a kernel ends with its manager, which nobody else can reach it by. */
#ifndef GPUFI_SERVER_PARENT_H
#define GPUFI_SERVER_PARENT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gpufi_parent {
  int64_t process_id; /* 0 = there is no manager, or it is not to be watched */
  uint64_t start_time;
} gpufi_parent;

/* The process in JPY_PARENT_PID, if it is one from which this process descends: a program that a
 * batch system has started elsewhere, in an environment that was copied, has no such parent. */
gpufi_parent gpufi_parent_find(void);
/* When this process started, in nanoseconds since 1970, at most a clock tick early or late;
 * INT64_MIN if that is not known. */
int64_t gpufi_parent_launch_time(void);
bool gpufi_parent_has_ended(const gpufi_parent *parent); /* false where there is none */

#endif
