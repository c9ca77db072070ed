/* The threads of a thread block: whose turn it is, and how they wait for each other. */
#include "thread_block.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <iterator>

#include "symbols.h"

namespace emulation {

/* --- failures ---------------------------------------------------------------------- */

void fail(const place *at, const char *format, ...) {
  const fiber &f = self();
  const grid_launch &launch = *f.where->of;
  va_list arguments;
  fputs("CUDA emulation: ", stderr);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  if (at) {
    fprintf(stderr, ", in %s at %s:%d", at->operation, at->file, at->line);
  }
  fprintf(stderr,
          "\n  kernel %s\n  thread block (%u, %u, %u), thread (%u, %u, %u), seed 0x%" PRIx64 "\n",
          function_name(launch.address), f.block_index.x, f.block_index.y, f.block_index.z,
          f.thread_index.x, f.thread_index.y, f.thread_index.z, launch.seed);
  abort();
}

static void print_waiting(const fiber &f) {
  char mask[16] = "";
  if (f.now == phase::at_warp) {
    snprintf(mask, sizeof(mask), "(0x%08x)", f.mask);
  }
  fprintf(stderr, "CUDA emulation:   thread %u waits in %s%s at %s:%d\n", f.number, f.at.operation,
          mask, f.at.file, f.at.line);
}

static bool wait_alike(const fiber &a, const fiber &b) {
  return a.now == b.now && a.at.line == b.at.line && strcmp(a.at.file, b.at.file) == 0 &&
         (a.now == phase::at_barrier ||
          (a.mask == b.mask && a.number / kWarpLanes == b.number / kWarpLanes));
}

/* Called by the last thread that ran. Of threads that wait alike, the first is named. */
[[noreturn]] static void fail_for_deadlock(const resident &r) {
  uint32_t printed_count = 0;
  for (uint32_t i = 0; i < r.thread_count && printed_count < 16; i++) {
    const fiber &f = r.threads[i];
    bool is_first = f.now != phase::done;
    for (uint32_t k = 0; k < i && is_first; k++) {
      is_first = r.threads[k].now == phase::done || !wait_alike(r.threads[k], f);
    }
    if (is_first) {
      print_waiting(f);
      printed_count++;
    }
  }
  fail(nullptr, "deadlock: %u threads of the thread block wait for ever, and %u have returned",
       r.live_count, r.thread_count - r.live_count);
}

/* --- turns ------------------------------------------------------------------------- */

static void make_ready(fiber &f) {
  resident &r = *f.where;
  r.waiting_count[f.number / kWarpLanes] -= f.now == phase::at_warp;
  f.now = phase::ready;
  r.ready[r.ready_count++] = &f;
}

static fiber *take_ready(resident &r) {
  fiber *&chosen = r.ready[r.of->below(r.ready_count)];
  fiber *const f = chosen;
  chosen = r.ready[--r.ready_count];
  return f;
}

/* Let others run until someone has made this thread ready and its turn comes. One time in
 * `turn_count`, another thread block may run first. */
static void switch_away(fiber &f, uint32_t turn_count = 1024) {
  resident &r = *f.where;
  if (r.ready_count == 0) {
    fail_for_deadlock(r);
  }
  if (++r.of->switch_count > kSwitchesMax) {
    fail(nullptr, "the thread block waits for memory that nobody changes");
  }
  if (r.of->below(turn_count) == 0) {
    switch_context(&f.own, &r.of->scheduler, f.now == phase::done);
    return;
  }
  fiber *const next = take_ready(r);
  if (next != &f) {
    switch_context(&f.own, &next->own, f.now == phase::done);
  }
}

void yield() {
  fiber &f = self();
  make_ready(f);
  switch_away(f, 8);
}

void may_yield() {
  fiber &f = self();
  if (f.where->of->below(16) == 0) {
    make_ready(f);
    switch_away(f);
  }
}

/* --- the lanes of a mask ----------------------------------------------------------- */

static bool are_same(const place &a, const place &b) {
  return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0) &&
         (a.operation == b.operation || strcmp(a.operation, b.operation) == 0);
}

uint64_t lanes::value(uint32_t lane, const fiber &reader) const {
  if (lane >= kWarpLanes || !(mask_ >> lane & 1)) {
    fail(&reader.at, "lane %u reads a value of lane %u, which is not in the mask 0x%08x",
         reader.lane, lane, mask_);
  }
  return of_warp_[lane].value;
}

static bool all_have_come(const fiber &f, const fiber *warp, uint32_t lane_count) {
  for (uint32_t rest = f.mask; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    if (lane >= lane_count) {
      fail(&f.at, "the mask 0x%08x names lane %u, which the warp does not have", f.mask, lane);
    }
    const fiber &other = warp[lane];
    if (other.now == phase::done) {
      fail(&f.at, "the mask 0x%08x names lane %u, which has returned", f.mask, lane);
    }
    if (other.now != phase::at_warp || other.mask != f.mask) {
      return false;
    }
    if (!are_same(other.at, f.at)) {
      fail(&f.at, "lane %u is in %s at %s:%d with the same mask 0x%08x", lane, other.at.operation,
           other.at.file, other.at.line, f.mask);
    }
  }
  return true;
}

uint64_t meet(const place &at, uint32_t mask, uint64_t value, uint64_t operand,
              void (*resolve)(const lanes &all)) {
  fiber &f = self();
  resident &r = *f.where;
  const uint32_t first = f.number - f.lane, left = r.thread_count - first;
  fiber *const warp = &r.threads[first];
  if (!(mask >> f.lane & 1)) {
    fail(&at, "lane %u is not in its own mask 0x%08x", f.lane, mask);
  }
  f.now = phase::at_warp;
  r.waiting_count[f.number / kWarpLanes]++;
  f.at = at;
  f.mask = mask;
  f.value = value;
  f.operand = operand;
  if (all_have_come(f, warp, left < kWarpLanes ? left : kWarpLanes)) {
    const lanes all(warp, mask);
    resolve(all);
    all.each(make_ready);
  }
  switch_away(f);
  return f.result;
}

/* --- the barrier ------------------------------------------------------------------- */

static void open_barrier(resident &r) {
  for (uint32_t i = 0; i < r.thread_count; i++) {
    fiber &f = r.threads[i];
    if (f.now == phase::at_barrier) {
      f.result = r.true_count;
      make_ready(f);
    }
  }
  r.arrived_count = r.true_count = 0;
}

uint32_t wait_at_barrier(const place &at, bool value) {
  fiber &f = self();
  resident &r = *f.where;
  if (r.arrived_count == 0) {
    r.barrier = at;
  } else if (!are_same(r.barrier, at)) {
    fail(&at, "other threads of the thread block wait in %s at %s:%d", r.barrier.operation,
         r.barrier.file, r.barrier.line);
  }
  f.now = phase::at_barrier;
  f.at = at;
  r.true_count += value;
  if (++r.arrived_count == r.live_count) {
    open_barrier(r);
  }
  switch_away(f);
  return static_cast<uint32_t>(f.result);
}

/* --- a thread's life --------------------------------------------------------------- */

static void check_not_awaited(const fiber &f) {
  const resident &r = *f.where;
  const uint32_t warp = f.number / kWarpLanes;
  if (r.waiting_count[warp] == 0) {
    return;
  }
  for (uint32_t i = f.number - f.lane; i < r.thread_count && i / kWarpLanes == warp; i++) {
    const fiber &other = r.threads[i];
    if (other.now == phase::at_warp && other.mask >> f.lane & 1) {
      fail(&other.at, "lane %u returns while lane %u waits for it with the mask 0x%08x", f.lane,
           other.lane, other.mask);
    }
  }
}

static void thread_main() {
  fiber &f = self();
  resident &r = *f.where;
  context_entered(&r.of->scheduler);
  (*r.of->kernel)();
  check_not_awaited(f);
  f.now = phase::done;
  r.live_count--;
  if (r.live_count == 0) {
    switch_context(&f.own, &r.of->scheduler, true);
  }
  if (r.arrived_count == r.live_count) {
    open_barrier(r);
  }
  switch_away(f);
  abort(); /* nobody makes it ready */
}

static void start(resident &r, uint32_t number, uint3 thread, uint3 block) {
  fiber &f = r.threads[number];
  f.thread_index = thread;
  f.block_index = block;
  f.block_dim = r.of->threads;
  f.grid_dim = r.of->grid;
  f.number = number;
  f.lane = number % kWarpLanes;
  f.where = &r;
  f.now = phase::ready;
  context_init(&f.own, r.arena, number, thread_main);
  make_ready(f);
}

void begin_thread_block(resident *r, uint3 block) {
  const dim3 threads = r->of->threads;
  uint32_t number = 0;
  r->block = block;
  r->ready_count = r->arrived_count = r->true_count = 0;
  r->live_count = r->thread_count;
  std::fill(std::begin(r->waiting_count), std::end(r->waiting_count), 0);
  for (uint32_t z = 0; z < threads.z; z++) {
    for (uint32_t y = 0; y < threads.y; y++) {
      for (uint32_t x = 0; x < threads.x; x++) {
        start(*r, number++, {x, y, z}, block);
      }
    }
  }
}

void resume_thread_block(resident *r) {
  switch_context(&r->of->scheduler, &take_ready(*r)->own, false);
}

} // namespace emulation
