/* Fibers: stacks of their own on one thread of the system, which take turns where they say so.
 *
 * A stack's size is a power of two and its address a multiple of that. Its topmost bytes belong to
 * whoever took it, who finds them from the address of any variable on the stack.
 * Thread-safety: stacks are taken and put back by any thread; a fiber stays on the thread that
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
constexpr size_t kOwnNbytes = 512; /* at the top of a stack */

/* Where a fiber, or the thread itself, goes on. */
struct context {
  void *stack_pointer;
  void *stack; /* lowest address */
  size_t stack_nbytes;
  void *asan_frames;
};

/* The stack that the caller runs on, if it is a fiber's. */
inline unsigned char *this_stack() {
  return reinterpret_cast<unsigned char *>(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) &
                                           ~(kStackNbytes - 1));
}

/* The lowest page of a stack may not be touched. Ends the process if there is no memory. */
unsigned char *stack_take();
void stack_put(unsigned char *stack);

/* The calling thread as a context that switch_context may leave. */
void context_of_thread(context *c);
/* `entry` will run on the stack, and must not return. */
void context_init(context *c, unsigned char *stack, void (*entry)());
/* Go on at `to`, until someone switches to `from`. With `is_over`, nobody will. */
void switch_context(context *from, context *to, bool is_over);
/* What a fiber does first. */
void context_entered();

} // namespace emulation

#endif
