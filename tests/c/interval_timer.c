/* Loaded by LD_PRELOAD, this interrupts the program's system calls a thousand times a second, as a
 * sampling profiler does: a timer's signal, with a handler that does nothing and that does not let
 * calls go on (no SA_RESTART). The library's own threads block the signal; the program's have it. A
 * child begins without the timer, and has its own once it executes a program. */
#include <signal.h>
#include <stddef.h>
#include <sys/time.h>

static void ignore(int number) {
  (void)number;
}

__attribute__((constructor)) static void start(void) {
  const struct sigaction action = {.sa_handler = ignore};
  const struct itimerval every_millisecond = {{0, 1000}, {0, 1000}};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &every_millisecond, NULL);
}
