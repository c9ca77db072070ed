#include "fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#if EMULATION_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

/* --- the switch -------------------------------------------------------------------- */

/* Push what a function must keep, store the stack pointer to *from, load `to` and pop. */
#if defined(__x86_64__)

extern "C" void emulation_switch(void **from, void *to);
asm(".text\n"
    ".globl emulation_switch\n"
    ".type emulation_switch, @function\n"
    "emulation_switch:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size emulation_switch, .-emulation_switch\n");

/* As if `entry` had been called: its stack pointer is 8 below a multiple of 16. */
static void *first_frame(unsigned char *top, unsigned char *, void (*entry)()) {
  void **const words = reinterpret_cast<void **>(top) - 8;
  memset(words, 0, 8 * sizeof(void *));
  words[6] = reinterpret_cast<void *>(entry);
  return words;
}

#elif defined(__aarch64__)

extern "C" void emulation_switch(void **from, void *to);
asm(".text\n"
    ".globl emulation_switch\n"
    ".type emulation_switch, %function\n"
    "emulation_switch:\n"
    "  stp x29, x30, [sp, -160]!\n"
    "  stp x19, x20, [sp, 16]\n"
    "  stp x21, x22, [sp, 32]\n"
    "  stp x23, x24, [sp, 48]\n"
    "  stp x25, x26, [sp, 64]\n"
    "  stp x27, x28, [sp, 80]\n"
    "  stp d8, d9, [sp, 96]\n"
    "  stp d10, d11, [sp, 112]\n"
    "  stp d12, d13, [sp, 128]\n"
    "  stp d14, d15, [sp, 144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, 16]\n"
    "  ldp x21, x22, [sp, 32]\n"
    "  ldp x23, x24, [sp, 48]\n"
    "  ldp x25, x26, [sp, 64]\n"
    "  ldp x27, x28, [sp, 80]\n"
    "  ldp d8, d9, [sp, 96]\n"
    "  ldp d10, d11, [sp, 112]\n"
    "  ldp d12, d13, [sp, 128]\n"
    "  ldp d14, d15, [sp, 144]\n"
    "  ldp x29, x30, [sp], 160\n"
    "  ret\n"
    ".size emulation_switch, .-emulation_switch\n");

static void *first_frame(unsigned char *top, unsigned char *, void (*entry)()) {
  void **const words = reinterpret_cast<void **>(top) - 20;
  memset(words, 0, 20 * sizeof(void *));
  words[1] = reinterpret_cast<void *>(entry); /* x30, where it returns to */
  return words;
}

#else /* two system calls a switch */

struct saved {
  ucontext_t context;
};

static void emulation_switch(void **from, void *to) {
  saved here;
  *from = &here;
  swapcontext(&here.context, &static_cast<saved *>(to)->context);
}

static void *first_frame(unsigned char *top, unsigned char *stack, void (*entry)()) {
  saved *const first = reinterpret_cast<saved *>(top - (sizeof(saved) + 63) / 64 * 64);
  getcontext(&first->context);
  first->context.uc_stack.ss_sp = stack;
  first->context.uc_stack.ss_size =
      static_cast<size_t>(reinterpret_cast<unsigned char *>(first) - stack);
  first->context.uc_link = nullptr;
  makecontext(&first->context, entry, 0);
  return first;
}

#endif

namespace emulation {

namespace {

struct free_arenas {
  std::mutex lock;
  std::vector<void *> arenas;
};

/* Lives as long as the process: threads may end after its exit handlers. */
free_arenas &all_free() {
  static free_arenas *const instance = new free_arenas;
  return *instance;
}

/* Memory that nobody has touched takes none of the system's. */
void *map_arena() {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void *const wide = mmap(nullptr, 2 * kArenaNbytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (wide == MAP_FAILED) {
    perror("CUDA emulation: no memory for stacks");
    abort();
  }
  unsigned char *const begin = static_cast<unsigned char *>(wide);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) & (kArenaNbytes - 1);
  if (before > 0) {
    munmap(begin, before);
  }
  munmap(begin + before + kArenaNbytes, kArenaNbytes - before);
  const size_t page_nbytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (uint32_t i = 1; i < kStackCount; i++) {
    mprotect(begin + before + i * kStackNbytes, page_nbytes, PROT_NONE);
  }
  return begin + before;
}

} // namespace

void *arena_take() {
  free_arenas &all = all_free();
  const std::lock_guard<std::mutex> guard(all.lock);
  if (all.arenas.empty()) {
    return map_arena();
  }
  void *const arena = all.arenas.back();
  all.arenas.pop_back();
  return arena;
}

void arena_put(void *arena) {
  free_arenas &all = all_free();
  const std::lock_guard<std::mutex> guard(all.lock);
  all.arenas.push_back(arena);
}

/* Stacks do not all begin at the same place of their pages, which would share a few sets of the
 * caches. */
constexpr size_t kShiftNbytes = 192;
constexpr uint32_t kShiftCount = 20;

void context_init(context *c, void *arena, uint32_t number, void (*entry)()) {
  unsigned char *const stack = static_cast<unsigned char *>(arena) + number * kStackNbytes;
  unsigned char *const top = stack + kStackNbytes - number % kShiftCount * kShiftNbytes;
#if EMULATION_ASAN
  ASAN_UNPOISON_MEMORY_REGION(stack, kStackNbytes); /* of frames that were never left */
#endif
  c->stack = stack;
  c->stack_nbytes = kStackNbytes;
  c->asan_frames = nullptr;
  c->stack_pointer = first_frame(top, stack + kOwnNbytes, entry);
}

void switch_context(context *from, context *to, bool is_over) {
#if EMULATION_ASAN
  __sanitizer_start_switch_fiber(is_over ? nullptr : &from->asan_frames, to->stack,
                                 to->stack_nbytes);
#else
  (void)is_over;
#endif
  emulation_switch(&from->stack_pointer, to->stack_pointer);
#if EMULATION_ASAN
  __sanitizer_finish_switch_fiber(from->asan_frames, nullptr, nullptr);
#endif
}

void context_entered(context *first) {
#if EMULATION_ASAN
  const void *stack;
  size_t nbytes;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &nbytes);
  if (!first->stack) {
    first->stack = stack;
    first->stack_nbytes = nbytes;
  }
#else
  (void)first;
#endif
}

} // namespace emulation
