#include "backend/host/faults.h"

#include <pthread.h>

#include "base/clock.h"

static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER; /* guards `faults` */
static gpufi_host_faults faults = {-1, -1, 0, 0};

void gpufi_host_faults_set(const gpufi_host_faults *wanted) {
  pthread_mutex_lock(&faults_lock);
  faults = *wanted;
  pthread_mutex_unlock(&faults_lock);
}

bool gpufi_host_take_alloc(void) {
  bool granted = true;
  pthread_mutex_lock(&faults_lock);
  if (faults.alloc_fail_after == 0) {
    granted = false;
  } else if (faults.alloc_fail_after > 0) {
    faults.alloc_fail_after--;
  }
  pthread_mutex_unlock(&faults_lock);
  return granted;
}

size_t gpufi_host_take_copy(size_t nbytes) {
  size_t granted = nbytes;
  pthread_mutex_lock(&faults_lock);
  if (faults.copy_fail_after_nbytes >= 0) {
    if ((uint64_t)faults.copy_fail_after_nbytes < nbytes) {
      granted = (size_t)faults.copy_fail_after_nbytes;
    }
    faults.copy_fail_after_nbytes -= (int64_t)granted;
  }
  pthread_mutex_unlock(&faults_lock);
  return granted;
}

void gpufi_host_delay(size_t nbytes) {
  pthread_mutex_lock(&faults_lock);
  double ns = (double)faults.latency_ns;
  if (faults.link_nbytes_per_second > 0) {
    ns += 1e9 * (double)nbytes / (double)faults.link_nbytes_per_second;
  }
  pthread_mutex_unlock(&faults_lock);
  if (ns >= 1.0) {
    gpufi_sleep_ns(ns < 9e18 ? (int64_t)ns : INT64_MAX);
  }
}
