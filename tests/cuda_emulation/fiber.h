/* Fibers: stacks of their own on one thread of the system, which take turns where they say so.
 *
 * Stacks lie side by side in an arena, whose size is a power of two and its address a multiple of
 * that. The arena's first bytes belong to whoever took it. So a fiber finds them, and its number,
 * by the address of any variable on its stack.
 * Thread-safety: arenas are taken and put back by any thread; a fiber stays on the thread that
 * switched to it first. */
#ifndef GPUFI_TEST_CUDA_EMULATION_FIBER_H
#define GPUFI_TEST_CUDA_EMULATION_FIBER_H

#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATION_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATION_ASAN 1
#endif
#endif
#ifndef EMULATION_ASAN
#define EMULATION_ASAN 0
#endif

namespace emulation {

/* Red zones around variables make frames several times as large. */
constexpr size_t kStackNbytes = EMULATION_ASAN ? size_t{512} << 10 : size_t{64} << 10;
constexpr uint32_t kStackCount = 1024;
constexpr size_t kArenaNbytes = kStackNbytes * kStackCount;
constexpr size_t kOwnNbytes = 64; /* at the arena's start; the lowest part of stack 0 */

/* Where a fiber, or the thread itself, goes on. */
struct context {
  void *stack_pointer;
  const void *stack; /* lowest address */
  size_t stack_nbytes;
  void *asan_frames;
};

/* The arena that the calling fiber's stack lies in, and the stack's number. */
inline void *this_arena() {
  return reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) &
                                  ~(kArenaNbytes - 1));
}
inline uint32_t this_stack() {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) /
                               kStackNbytes % kStackCount);
}

/* The lowest page of a stack may not be touched. Ends the process if there is no memory. */
void *arena_take();
void arena_put(void *arena);

/* `entry` will run on the stack of this number, and must not return. */
void context_init(context *c, void *arena, uint32_t number, void (*entry)());
/* Go on at `to`, until someone switches to `from`. With `is_over`, nobody will. */
void switch_context(context *from, context *to, bool is_over);
/* What a fiber does first; `first` is where the first fiber is switched to from, and all 0 before.
 */
void context_entered(context *first);

} // namespace emulation

#endif
