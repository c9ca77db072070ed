/* Gray-Scott: what the CUDA kernel and its host twin share. Both compile the same cell update, so
 * neither can drift from the other. Compile both without fused multiply-add (-ffp-contract=off,
 * nvcc --fmad=false): then every operation rounds as IEEE 754 says, in the order written, and CPU
 * and GPU give the same bits. */
#ifndef GRAY_SCOTT_CELL_H
#define GRAY_SCOTT_CELL_H

#include <stdint.h>

#ifdef __CUDACC__
#define GRAY_SCOTT_INLINE static __host__ __device__ __forceinline__
#else
#define GRAY_SCOTT_INLINE static inline
#endif

/* du/dt = Du lap(u) - u v^2 + F (1 - u)
 * dv/dt = Dv lap(v) + u v^2 - (F + k) v      on a grid of spacing 1, explicit Euler steps of dt. */
typedef struct gray_scott_model {
  float Du, Dv, F, k, dt;
} gray_scott_model;

/* One time step: the arguments of the kernel. Device pointers to C-order arrays of `shape`. */
typedef struct gray_scott_step {
  const float *u, *v;
  float *u_next, *v_next;
  int64_t shape[3];
  gray_scott_model model;
} gray_scott_step;

/* The neighbours of index `i` on a periodic axis of `n` cells. */
GRAY_SCOTT_INLINE int64_t gray_scott_before(int64_t i, int64_t n) {
  return i == 0 ? n - 1 : i - 1;
}
GRAY_SCOTT_INLINE int64_t gray_scott_after(int64_t i, int64_t n) {
  return i == n - 1 ? 0 : i + 1;
}

/* Advance the cell at flat index `c` whose neighbours along the axes are x0, x1, y0, y1, z0, z1. */
GRAY_SCOTT_INLINE void gray_scott_cell(const gray_scott_model *m, const float *__restrict__ u,
                                       const float *__restrict__ v, float *__restrict__ u_next,
                                       float *__restrict__ v_next, int64_t c, int64_t x0,
                                       int64_t x1, int64_t y0, int64_t y1, int64_t z0, int64_t z1) {
  float lap_u = ((u[x0] + u[x1]) + (u[y0] + u[y1])) + (u[z0] + u[z1]) - 6.0f * u[c];
  float lap_v = ((v[x0] + v[x1]) + (v[y0] + v[y1])) + (v[z0] + v[z1]) - 6.0f * v[c];
  float reaction = u[c] * v[c] * v[c];
  u_next[c] = u[c] + m->dt * (m->Du * lap_u - reaction + m->F * (1.0f - u[c]));
  v_next[c] = v[c] + m->dt * (m->Dv * lap_v + reaction - (m->F + m->k) * v[c]);
}

#endif
