/* Gray-Scott over MPI: each rank computes some planes of a 3-D array, all of them write one
 * checkpoint, and any number of ranks goes on from it, with the same bits.
 *
 *   mpirun -n 4 ./gray_scott_ranks FOLDER STEPS [CELLS]
 *
 * gpufetch knows no MPI. What it asks of a program of several ranks is the function `agree`, the
 * options' rank and rank_count, and a gpuf_part that says where a rank's planes lie in the array.
 * The planes are on the CPU here, to be short; those on a device are added in the same way, as
 * gray_scott.c does.
 *
 * Compile it against an installed gpufetch, with an MPI whose mpicc is found:
 *   mpicc -O3 -ffp-contract=off gray_scott_ranks.c -o gray_scott_ranks \
 *     $(pkg-config --cflags --libs gpufetch hdf5)
 */
#include "gray_scott_cell.h"

#include <gpufetch/checkpoint.h>
#include <gpufetch/gpufetch.h>

#include <hdf5.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVERY 20 /* steps between checkpoints */

static gpuf_error error; /* of the latest gpufetch call; this program has one thread */

/* One rank's failure ends all of them. */
static void fatal(const char *message) __attribute__((noreturn));
static void fatal(const char *message) {
  fprintf(stderr, "gray_scott_ranks: %s\n", message);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1); /* NOLINT(concurrency-mt-unsafe): this program has one thread */
}

/* A gpufetch call whose last argument is &error. */
#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != GPUF_OK) {                                                                       \
      fatal(error.message);                                                                        \
    }                                                                                              \
  } while (0)

/* --- The simulation --- */

/* The planes that a rank has: those that it computes, and a ghost plane before and behind. */
typedef struct planes {
  int rank, rank_count;
  int64_t cells;        /* of the whole array, along each axis */
  int64_t first, count; /* of the planes that this rank computes */
  float *u, *v, *u_next, *v_next;
} planes;

static int64_t plane_cells(const planes *p) {
  return p->cells * p->cells;
}

static float *create_array(const planes *p) {
  float *const array = calloc((size_t)((p->count + 2) * plane_cells(p)), sizeof(*array));
  if (!array) {
    fatal("no memory for the planes");
  }
  return array;
}

static planes planes_create(int64_t cells) {
  planes p = {.cells = cells};
  MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &p.rank_count);
  if (p.rank_count > cells) {
    fatal("there are more ranks than planes");
  }
  p.first = p.rank * cells / p.rank_count;
  p.count = (p.rank + 1) * cells / p.rank_count - p.first;
  p.u = create_array(&p);
  p.v = create_array(&p);
  p.u_next = create_array(&p);
  p.v_next = create_array(&p);
  return p;
}

static void planes_destroy(planes *p) {
  free(p->u);
  free(p->v);
  free(p->u_next);
  free(p->v_next);
}

/* u = 1 and v = 0, but for a cube in the middle; a function of the place alone. */
static void planes_seed(planes *p) {
  const int64_t n = p->cells;
  for (int64_t i = 0; i < p->count * plane_cells(p); i++) {
    const int64_t x = p->first + i / plane_cells(p), y = i / n % n, z = i % n;
    const int is_middle = x / 4 == n / 8 && y / 4 == n / 8 && z / 4 == n / 8;
    p->u[plane_cells(p) + i] = is_middle ? 0.5f : 1.0f;
    p->v[plane_cells(p) + i] = is_middle ? 0.25f : 0.0f;
  }
}

/* Fill the ghost planes with those of the ranks before and behind, round the ends. */
static void exchange(const planes *p, float *array) {
  const int before = (p->rank + p->rank_count - 1) % p->rank_count;
  const int behind = (p->rank + 1) % p->rank_count;
  const int64_t plane = plane_cells(p);
  const int count = (int)plane;
  MPI_Sendrecv(array + plane, count, MPI_FLOAT, before, 0, array + (p->count + 1) * plane, count,
               MPI_FLOAT, behind, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Sendrecv(array + p->count * plane, count, MPI_FLOAT, behind, 1, array, count, MPI_FLOAT,
               before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void planes_step(planes *p) {
  const gray_scott_model model = {0.12f, 0.06f, 0.035f, 0.06f, 1.0f};
  const int64_t n = p->cells, plane = plane_cells(p);
  exchange(p, p->u);
  exchange(p, p->v);
  for (int64_t row = n; row < (p->count + 1) * n; row++) {
    const int64_t x = row / n * plane, y = row % n, c = row * n;
    const int64_t y0 = x + gray_scott_before(y, n) * n, y1 = x + gray_scott_after(y, n) * n;
    for (int64_t z = 0; z < n; z++) {
      gray_scott_cell(&model, p->u, p->v, p->u_next, p->v_next, c + z, c + z - plane, c + z + plane,
                      y0 + z, y1 + z, c + gray_scott_before(z, n), c + gray_scott_after(z, n));
    }
  }
  float *const u = p->u, *const v = p->v;
  p->u = p->u_next;
  p->v = p->v_next;
  p->u_next = u;
  p->v_next = v;
}

/* --- Checkpoints --- */

static int64_t agree(void *comm, int64_t value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MIN, *(MPI_Comm *)comm);
  return value;
}

static gpuf_checkpoint *checkpoints_open(const planes *p, const char *folder, MPI_Comm *comm) {
  gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
  gpuf_checkpoint *checkpoint;
  options.directory = folder;
  options.prefix = "gray_scott";
  options.keep_count = 2;
  options.rank = p->rank;
  options.rank_count = p->rank_count;
  options.agree = agree;
  options.agree_arg = comm;
  CHECK(gpuf_checkpoint_open(&options, &checkpoint, NULL, &error));
  return checkpoint;
}

/* The planes that a rank computes, without the ghosts, and where they lie in the array. */
static gpuf_tensor planes_tensor(const planes *p, float *array, gpuf_part *part) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  const int64_t shape[] = {p->count, p->cells, p->cells};
  gpuf_tensor tensor;
  *part = (gpuf_part)GPUF_PART_INIT;
  part->shape[0] = part->shape[1] = part->shape[2] = p->cells;
  part->start[0] = p->first;
  CHECK(
      gpuf_tensor_init(&tensor, array + plane_cells(p), cpu, GPUF_DTYPE_FLOAT32, 3, shape, &error));
  return tensor;
}

/* The next steps may overwrite the planes at once. A failure costs this checkpoint alone. */
static void checkpoint_write(gpuf_checkpoint *c, const planes *p, int64_t step) {
  gpuf_checkpoint_report before = GPUF_CHECKPOINT_REPORT_INIT;
  gpuf_part part;
  const gpuf_tensor u = planes_tensor(p, p->u, &part), v = planes_tensor(p, p->v, &part);
  CHECK(gpuf_checkpoint_begin(c, step, &before, &error));
  if (before.status != GPUF_OK) {
    fprintf(stderr, "gray_scott_ranks: rank %d: %s\n", p->rank, before.message);
  }
  CHECK(gpuf_checkpoint_add(c, "u", &u, &part, &error));
  CHECK(gpuf_checkpoint_add(c, "v", &v, &part, &error));
  CHECK(gpuf_checkpoint_add_int64(c, "step", step, &error));
  gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &error); /* the next report says if it failed */
}

/* Read this rank's planes of the newest checkpoint, whoever wrote it; returns its step, or 0. All
 * ranks open the same one, since none writes meanwhile. */
static int64_t checkpoint_read(planes *p, const char *folder) {
  gpuf_restart *restart;
  gpuf_part part;
  int64_t step = 0;
  CHECK(gpuf_restart_open(folder, "gray_scott", -1, &restart, NULL, &error));
  if (!restart) {
    planes_seed(p);
    return 0;
  }
  const gpuf_tensor u = planes_tensor(p, p->u, &part), v = planes_tensor(p, p->v, &part);
  CHECK(gpuf_restart_read(restart, "u", &u, &part, &error));
  CHECK(gpuf_restart_read(restart, "v", &v, &part, &error));
  CHECK(gpuf_restart_get_int64(restart, "step", &step, &error));
  gpuf_restart_close(restart);
  return step;
}

int main(int argc, char **argv) {
  MPI_Comm comm = MPI_COMM_WORLD;
  MPI_Init(&argc, &argv);
  H5open(); /* so that libhdf5 is linked, with which gpufetch writes */
  const int64_t steps = argc > 2 ? strtoll(argv[2], NULL, 10) : 0;
  const int64_t cells = argc > 3 ? strtoll(argv[3], NULL, 10) : 64;
  if (steps < 1 || cells < 1 || cells > 10000) {
    fatal("usage: gray_scott_ranks FOLDER STEPS [CELLS]");
  }
  planes p = planes_create(cells);
  gpuf_checkpoint *const checkpoint = checkpoints_open(&p, argv[1], &comm);
  int64_t step = checkpoint_read(&p, argv[1]);
  if (p.rank == 0) {
    printf("%d ranks from step %" PRId64 "\n", p.rank_count, step);
  }
  while (step < steps) {
    planes_step(&p);
    step++;
    if (step % EVERY == 0 || step == steps) {
      checkpoint_write(checkpoint, &p, step);
    }
  }
  CHECK(gpuf_checkpoint_close(checkpoint, NULL, &error));
  planes_destroy(&p);
  MPI_Finalize();
  return 0;
}
