/* One rank of a program that is spread over several: each computes its rows of a travelling wave
 * and serves them, and a notebook sees one array. Take it as the start of serving your own ranks.
 *
 *   ./wave_ranks --rank 0 --ranks 2 &
 *   ./wave_ranks --rank 1 --ranks 2 &
 *   python -c 'import gpufetch as gf; print(gf.connect("wave-*")["u"].overview((4, 4)).values)'
 *
 * With MPI, rank and ranks are what MPI_Comm_rank and MPI_Comm_size say; nothing else changes, for
 * gpufetch knows no MPI. On several machines, let serve_options.ip be this machine's address, and
 * JUPYTER_RUNTIME_DIR a folder that all share.
 *
 * Compile it against an installed gpufetch:
 *   cc -O2 wave_ranks.c -o wave_ranks $(pkg-config --cflags --libs gpufetch-serve) -lm
 */
#include <gpufetch/gpufetch.h>
#include <gpufetch/serve.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static gpuf_error error; /* of the latest gpufetch call; this program has one thread */

/* A gpufetch call whose last argument is &error. */
#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != GPUF_OK) {                                                                       \
      fprintf(stderr, "wave_ranks: %s\n", error.message);                                          \
      exit(1); /* NOLINT(concurrency-mt-unsafe): this program has one thread */                    \
    }                                                                                              \
  } while (0)

/* The part of the wave that a rank has: the rows that it computes, and a ghost row before and after
 * them, as a stencil needs it. */
typedef struct part {
  int64_t shape[2];        /* of the whole wave */
  int64_t first_row, rows; /* that this rank computes */
  float *values;           /* rows + 2, on the host */
  gpuf_tensor field;       /* rows + 2, on the device */
} part;

static void part_create(part *p, int64_t rank, int64_t ranks) {
  gpuf_device device;
  p->first_row = rank * p->shape[0] / ranks;
  p->rows = (rank + 1) * p->shape[0] / ranks - p->first_row;
  const int64_t shape[2] = {p->rows + 2, p->shape[1]};
  CHECK(gpuf_device_default(&device, &error));
  CHECK(gpuf_tensor_alloc(device, GPUF_DTYPE_FLOAT32, 2, shape, &p->field, &error));
  p->values = malloc(gpuf_tensor_nbytes(&p->field));
  if (!p->values) {
    fprintf(stderr, "wave_ranks: no memory for %zu bytes\n", gpuf_tensor_nbytes(&p->field));
    exit(1); /* NOLINT(concurrency-mt-unsafe): this program has one thread */
  }
}

static void part_destroy(part *p) {
  CHECK(gpuf_tensor_free(&p->field, &error));
  free(p->values);
}

/* Compute the wave at a time. Its values are from -1 to 1, and its period is 1 along each axis and
 * in time. */
static void part_compute(part *p, double at) {
  const double turn = 2 * acos(-1.0);
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor from;
  for (int64_t row = 0; row < p->rows + 2; row++) {
    const double x = (double)(p->first_row + row - 1) / (double)p->shape[0];
    for (int64_t column = 0; column < p->shape[1]; column++) {
      const double y = (double)column / (double)p->shape[1];
      p->values[row * p->shape[1] + column] = (float)sin(turn * (x + y - at));
    }
  }
  CHECK(gpuf_tensor_init(&from, p->values, cpu, GPUF_DTYPE_FLOAT32, 2, p->field.shape, &error));
  CHECK(gpuf_copy(&p->field, &from, NULL, &error));
}

/* Serve the rank's rows without the ghost rows, and say where they lie in the wave. */
static void part_publish(const part *p, gpuf_server *server) {
  const int64_t start[2] = {p->first_row, 0};
  const gpuf_publish_options options = {
      .struct_nbytes = sizeof(options), .global_shape = p->shape, .start = start};
  gpuf_tensor own = p->field;
  CHECK(gpuf_tensor_slice(&own, 0, 1, 1, p->rows, &error));
  CHECK(gpuf_server_publish(server, "u", &own, &options, &error));
}

static int64_t take(const char *option, const char *text, int64_t least) {
  char *end = NULL;
  const long long value = text ? strtoll(text, &end, 10) : -1;
  if (!text || end == text || *end || value < least || value > INT32_MAX) {
    fprintf(stderr, "wave_ranks: %s %s: expected an integer from %" PRId64 " to %d\n", option,
            text ? text : "", least, INT32_MAX);
    exit(1); /* NOLINT(concurrency-mt-unsafe): this program has one thread */
  }
  return value;
}

int main(int argc, char **argv) {
  struct {
    const char *name;
    int64_t value, least;
  } options[] = {{"--rank", 0, 0},       {"--ranks", 1, 1},  {"--rows", 1000, 1},
                 {"--columns", 1000, 1}, {"--steps", -1, 0}, {"--ms", 10, 0}};
  enum { RANK, RANKS, ROWS, COLUMNS, STEPS, MS, COUNT };
  for (int i = 1; i < argc; i += 2) {
    int found = 0;
    while (found < COUNT && strcmp(argv[i], options[found].name) != 0) {
      found++;
    }
    if (found == COUNT) {
      fputs("usage: wave_ranks --rank R --ranks N [--rows N] [--columns N] [--steps N] [--ms N]\n"
            "Without --steps it goes on until it is stopped; a step takes --ms milliseconds.\n",
            stderr);
      return 1;
    }
    options[found].value = take(argv[i], argv[i + 1], options[found].least);
  }
  const int64_t rank = options[RANK].value, ranks = options[RANKS].value;
  part p = {.shape = {options[ROWS].value, options[COLUMNS].value}};
  if (rank >= ranks || ranks > p.shape[0]) {
    fprintf(stderr, "wave_ranks: rank %" PRId64 " of %" PRId64 " has none of %" PRId64 " rows\n",
            rank, ranks, p.shape[0]);
    return 1;
  }
  part_create(&p, rank, ranks);

  char name[32];
  gpuf_server *server;
  const gpuf_server_options serve_options = {
      .struct_nbytes = sizeof(serve_options), .name = name, .jupyterlab = true};
  snprintf(name, sizeof(name), "wave-%" PRId64, rank);
  CHECK(gpuf_server_start(&serve_options, &server, &error));
  printf("serving: %s\n", gpuf_server_connection_file(server));
  fflush(stdout);

  const struct timespec pause = {options[MS].value / 1000, options[MS].value % 1000 * 1000000};
  for (int64_t step = 0; options[STEPS].value < 0 || step <= options[STEPS].value; step++) {
    part_compute(&p, 0.001 * (double)step);
    part_publish(&p, server);
    CHECK(gpuf_server_publish_step(server, step, 0.001 * (double)step, &error));
    struct timespec left = pause;
    while (nanosleep(&left, &left) != 0) { /* a signal came: sleep for the rest */
    }
  }
  CHECK(gpuf_server_stop(server, &error)); /* before the memory is freed */
  part_destroy(&p);
  return 0;
}
