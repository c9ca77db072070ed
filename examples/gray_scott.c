/* Gray-Scott: a 3-D reaction-diffusion simulation on the device that writes HDF5 checkpoints and
 * restarts from any of them bit for bit. Take it as the start of your own code.
 *
 * What gpufetch asks of a simulation is in three places:
 *   simulation_create  allocate device arrays: gpuf_tensor_alloc, and the stream
 *   checkpoint_write   gpuf_checkpoint_begin, _add(checkpoint, "u", &u, ...) and _commit: a thread
 *                      writes the file while the simulation goes on
 *   checkpoint_read    gpuf_h5_read(file, "u", &u, ...) of the file that the user names, which may
 * be any; a program that goes on by itself asks gpuf_restart_open for the newest and, for notebooks
 * that watch it run (--serve), gpuf_server_start in main and serve_step. The rest is the
 * simulation's own: kernels, HDF5 files and attributes, options.
 *
 * Compile it against an installed gpufetch, for the host backend alone:
 *   cc -O3 -ffp-contract=off gray_scott.c -o gray_scott \
 *     $(pkg-config --cflags --libs gpufetch-serve hdf5)
 * and with CUDA:
 *   nvcc -O3 --fmad=false -c gray_scott_cuda.cu
 *   cc -O3 -ffp-contract=off -DGRAY_SCOTT_CUDA gray_scott.c gray_scott_cuda.o -o gray_scott \
 *     $(pkg-config --cflags --libs gpufetch-serve hdf5) -L/usr/local/cuda/lib64 -lcudart -lstdc++
 */
#include "gray_scott_cell.h"

#include <gpufetch/checkpoint.h>
#include <gpufetch/gpufetch.h>
#include <gpufetch/hdf5.h>
#include <gpufetch/serve.h>

#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* --- Errors: one line on stderr, exit status 1 --- */

static gpuf_error error; /* of the latest gpufetch call; this program has one thread */

static void fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fatal(const char *format, ...) {
  va_list values;
  va_start(values, format);
  fputs("gray_scott: ", stderr);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  va_end(values);
  exit(1); /* NOLINT(concurrency-mt-unsafe): this program has one thread */
}

/* A gpufetch call whose last argument is &error. */
#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != GPUF_OK) {                                                                       \
      fatal("%s", error.message);                                                                  \
    }                                                                                              \
  } while (0)

/* --- The simulation --- */

typedef struct simulation {
  gpuf_device device;
  gpuf_stream stream; /* every step runs here, in order */
  gray_scott_model model;
  int64_t step; /* time steps done; the time is step × dt */
  gpuf_tensor u, v, u_next, v_next;
} simulation;

static const struct {
  const char *name;
  size_t offset;
} parameters[] = {{"Du", offsetof(gray_scott_model, Du)},
                  {"Dv", offsetof(gray_scott_model, Dv)},
                  {"F", offsetof(gray_scott_model, F)},
                  {"k", offsetof(gray_scott_model, k)},
                  {"dt", offsetof(gray_scott_model, dt)}};
enum { PARAMETER_COUNT = sizeof parameters / sizeof parameters[0] };

static float *parameter(gray_scott_model *model, int i) {
  return (float *)((char *)model + parameters[i].offset);
}

/* Refuse what would grow without limit. Explicit diffusion in three dimensions is stable up to
 * dt = 1 / (6 D); the reaction takes some of that, so the bound here is 1 / (8 D). `source` is
 * where the parameters come from. */
static void model_check(gray_scott_model *m, const char *source) {
  const float D = m->Du > m->Dv ? m->Du : m->Dv;
  for (int i = 0; i < PARAMETER_COUNT; i++) {
    const float value = *parameter(m, i);
    if (!isfinite(value) || value < 0) {
      fatal("%s: %s = %g is not a number of 0 or more", source, parameters[i].name, (double)value);
    }
  }
  if (m->dt == 0 || 8 * D * m->dt > 1) {
    fatal("%s: dt = %g is unstable with Du = %g, Dv = %g: it must be in (0, 1 / (8 D)]", source,
          (double)m->dt, (double)m->Du, (double)m->Dv);
  }
}

/* Allocate the arrays on the default device (GPUFETCH_BACKEND = cuda | host | auto). */
static void simulation_create(simulation *s, const int64_t shape[3]) {
  gpuf_tensor *tensors[] = {&s->u, &s->v, &s->u_next, &s->v_next};
  CHECK(gpuf_device_default(&s->device, &error));
  CHECK(gpuf_stream_create(s->device, &s->stream, &error));
  for (int i = 0; i < 4; i++) {
    CHECK(gpuf_tensor_alloc(s->device, GPUF_DTYPE_FLOAT32, 3, shape, tensors[i], &error));
    tensors[i]->stream = s->stream; /* gpufetch waits for the steps that are still running */
  }
}

static void simulation_destroy(simulation *s) {
  CHECK(gpuf_stream_destroy(s->device, s->stream, &error));
  CHECK(gpuf_tensor_free(&s->u, &error));
  CHECK(gpuf_tensor_free(&s->v, &error));
  CHECK(gpuf_tensor_free(&s->u_next, &error));
  CHECK(gpuf_tensor_free(&s->v_next, &error));
}

/* Uniform in [0, 1), a function of `index` alone (splitmix64 with a fixed seed). */
static float uniform(uint64_t index) {
  uint64_t x = (index + 2026) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return (float)((x ^ (x >> 31)) >> 40) * 0x1p-24f;
}

/* u = 1, v = 0 with 1 % noise and, about one in 20³ cells, cubes where the reaction starts. */
static void simulation_seed(simulation *s) {
  const int64_t *n = s->u.shape;
  const int64_t count = gpuf_tensor_count(&s->u);
  const int64_t cube_count = 1 + count / 8000;
  float *u = malloc((size_t)count * sizeof *u);
  float *v = malloc((size_t)count * sizeof *v);
  gpuf_tensor from;
  if (!u || !v) {
    fatal("no host memory for a seed of %" PRId64 " cells", count);
  }
  for (int64_t i = 0; i < count; i++) {
    u[i] = 1.0f - 0.01f * uniform((uint64_t)i);
    v[i] = 0.01f * uniform((uint64_t)(count + i));
  }
  for (int64_t i = 0; i < cube_count * 216; i++) { /* 6 × 6 × 6 cells a cube */
    const uint64_t cube = (uint64_t)(2 * count + i / 216 * 3);
    const int64_t x = ((int64_t)(uniform(cube) * (float)n[0]) + i % 6) % n[0];
    const int64_t y = ((int64_t)(uniform(cube + 1) * (float)n[1]) + i / 6 % 6) % n[1];
    const int64_t z = ((int64_t)(uniform(cube + 2) * (float)n[2]) + i / 36 % 6) % n[2];
    u[(x * n[1] + y) * n[2] + z] = 0.5f;
    v[(x * n[1] + y) * n[2] + z] = 0.25f;
  }
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  CHECK(gpuf_tensor_init(&from, u, cpu, GPUF_DTYPE_FLOAT32, 3, n, &error));
  CHECK(gpuf_copy(&s->u, &from, NULL, &error));
  from.data = v;
  CHECK(gpuf_copy(&s->v, &from, NULL, &error));
  free(u);
  free(v);
}

/* The kernel's host twin. Device memory is out of the host's reach, as on a GPU, except through
 * gpuf_host_pointer inside a kernel that gpuf_host_launch runs. */
static void step_on_host(const void *args) {
  const gray_scott_step *s = args;
  const gray_scott_model m = s->model;
  const int64_t nx = s->shape[0], ny = s->shape[1], nz = s->shape[2];
  const float *u = gpuf_host_pointer(s->u), *v = gpuf_host_pointer(s->v);
  float *u_next = gpuf_host_pointer(s->u_next), *v_next = gpuf_host_pointer(s->v_next);
  for (int64_t row = 0; row < nx * ny; row++) {
    const int64_t x = row / ny, y = row % ny, c = row * nz, last = nz - 1;
    const int64_t x0 = (gray_scott_before(x, nx) * ny + y) * nz;
    const int64_t x1 = (gray_scott_after(x, nx) * ny + y) * nz;
    const int64_t y0 = (x * ny + gray_scott_before(y, ny)) * nz;
    const int64_t y1 = (x * ny + gray_scott_after(y, ny)) * nz;
    /* The row's ends wrap round; between them the loop is plain enough to vectorise. */
    gray_scott_cell(&m, u, v, u_next, v_next, c, x0, x1, y0, y1, c + last,
                    c + gray_scott_after(0, nz));
    for (int64_t z = 1; z < last; z++) {
      gray_scott_cell(&m, u, v, u_next, v_next, c + z, x0 + z, x1 + z, y0 + z, y1 + z, c + z - 1,
                      c + z + 1);
    }
    gray_scott_cell(&m, u, v, u_next, v_next, c + last, x0 + last, x1 + last, y0 + last, y1 + last,
                    c + gray_scott_before(last, nz), c);
  }
}

#ifdef GRAY_SCOTT_CUDA
const char *gray_scott_cuda_launch(const gray_scott_step *step, int device_index, uintptr_t stream);
#else
static const char *gray_scott_cuda_launch(const gray_scott_step *step, int device_index,
                                          uintptr_t stream) {
  return "built without CUDA: set GPUFETCH_BACKEND=host, or build with gray_scott_cuda.cu";
}
#endif

/* Enqueue one time step; returns at once. */
static void simulation_step(simulation *s) {
  gray_scott_step step = {.u = s->u.data, .v = s->v.data, .model = s->model};
  step.u_next = s->u_next.data;
  step.v_next = s->v_next.data;
  memcpy(step.shape, s->u.shape, sizeof step.shape);
  if (s->device.kind == GPUF_DEVICE_HOST) {
    CHECK(gpuf_host_launch(s->device, s->stream, step_on_host, &step, sizeof step, &error));
  } else {
    const char *failure = gray_scott_cuda_launch(&step, s->device.index, s->stream);
    if (failure) {
      fatal("step %" PRId64 ": %s", s->step, failure);
    }
  }
  const gpuf_tensor u = s->u, v = s->v;
  s->u = s->u_next;
  s->v = s->v_next;
  s->u_next = u;
  s->v_next = v;
  s->step++;
}

/* --- Checkpoints --- */

#define MODEL "Gray-Scott" /* what a checkpoint says that it is of */

/* `keep` 0: all of them are kept; `shards` 1: each is one file. */
static gpuf_checkpoint *checkpoints_open(const simulation *s, const char *directory, int64_t keep,
                                         int64_t shards) {
  gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
  gpuf_checkpoint *checkpoint;
  options.directory = directory;
  options.prefix = "gray_scott";
  options.device = s->device;
  options.state_nbytes = 2 * gpuf_tensor_nbytes(&s->u);
  options.replace = true; /* the steps of an earlier run in the same directory */
  options.keep_count = (int32_t)keep;
  options.recycle = keep > 0; /* the file of one that is not kept becomes that of the next */
  options.shard_count = (size_t)shards;
  CHECK(gpuf_checkpoint_open(&options, &checkpoint, NULL, &error));
  return checkpoint;
}

/* Say how a checkpoint ended. A failure costs that one: the simulation goes on. */
static void checkpoint_say(const gpuf_checkpoint_report *report) {
  if (report->step >= 0 && report->status == GPUF_OK) {
    printf("step %6" PRId64 ": %s\n", report->step, report->path);
    fflush(stdout);
  } else if (report->step >= 0) {
    fprintf(stderr, "gray_scott: checkpoint of step %" PRId64 ": %s\n", report->step,
            report->message);
  }
}

/* Begin DIRECTORY/gray_scott-NNNNNNNNNNNN.h5. The file gets that name only once it is whole and on
 * disk, so that a kill at any moment leaves complete checkpoints. The next steps may overwrite the
 * arrays at once, since they run on the stream of the snapshot. */
static void checkpoint_write(gpuf_checkpoint *c, simulation *s) {
  const double t = (double)s->step * (double)s->model.dt;
  gpuf_checkpoint_report before = GPUF_CHECKPOINT_REPORT_INIT;
  CHECK(gpuf_checkpoint_begin(c, s->step, &before, &error));
  checkpoint_say(&before);
  CHECK(gpuf_checkpoint_add(c, "u", &s->u, NULL, &error));
  CHECK(gpuf_checkpoint_add(c, "v", &s->v, NULL, &error));
  CHECK(gpuf_checkpoint_add_text(c, "model", MODEL, &error));
  CHECK(gpuf_checkpoint_add_int64(c, "step", s->step, &error));
  CHECK(gpuf_checkpoint_add_float64(c, "time", t, &error));
  for (int i = 0; i < PARAMETER_COUNT; i++) {
    const double value = (double)*parameter(&s->model, i);
    CHECK(gpuf_checkpoint_add_float64(c, parameters[i].name, value, &error));
  }
  gpuf_checkpoint_commit(c, s->stream, &error); /* the next report says if it failed */
}

/* Wait for the last one, which must be whole. */
static void checkpoints_close(gpuf_checkpoint *c) {
  gpuf_checkpoint_report last = GPUF_CHECKPOINT_REPORT_INIT;
  CHECK(gpuf_checkpoint_close(c, &last, &error));
  checkpoint_say(&last);
}

/* The shape of dataset `name`, which must be 3-D float32. */
static void checkpoint_shape(hid_t file, const char *path, const char *name, int64_t shape[3]) {
  gpuf_tensor found;
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  if (dataset < 0) {
    fatal("%s has no dataset %s: not a checkpoint of gray_scott", path, name);
  }
  CHECK(gpuf_h5_describe(dataset, &found, NULL, &error));
  H5Dclose(dataset);
  if (found.dtype != GPUF_DTYPE_FLOAT32 || found.ndim != 3) {
    fatal("dataset %s of %s is %d-D %s; a checkpoint has 3-D float32", name, path, (int)found.ndim,
          gpuf_dtype_name(found.dtype));
  }
  memcpy(shape, found.shape, 3 * sizeof shape[0]);
  if (shape[0] == 0 || shape[1] == 0 || shape[2] == 0) {
    fatal("dataset %s of %s has no cells", name, path);
  }
}

/* Step and parameters, which are attributes of the root. Their float64 holds every float32. */
static void checkpoint_attributes(simulation *s, hid_t file, const char *path) {
  char model[64];
  size_t model_nbytes = sizeof model;
  double value = 0;
  gpuf_status status =
      gpuf_h5_get_attribute_text(file, "/", "model", model, &model_nbytes, NULL, &error);
  if (status == GPUF_OK && strcmp(model, MODEL) != 0) {
    fatal("%s is a checkpoint of '%s': not a checkpoint of gray_scott", path, model);
  }
  if (status == GPUF_OK) {
    status = gpuf_h5_get_attribute_int64(file, "/", "step", &s->step, NULL, &error);
  }
  for (int i = 0; i < PARAMETER_COUNT && status == GPUF_OK; i++) {
    status = gpuf_h5_get_attribute_float64(file, "/", parameters[i].name, &value, NULL, &error);
    *parameter(&s->model, i) = (float)value;
  }
  if (status != GPUF_OK) {
    fatal("%s: %s: not a checkpoint of gray_scott", path, error.message);
  }
  model_check(&s->model, path);
  if (s->step < 0) {
    fatal("%s: step %" PRId64 " is negative", path, s->step);
  }
}

/* Create the simulation as the checkpoint at `path` left it: arrays, step and parameters. */
static void checkpoint_read(simulation *s, const char *path) {
  int64_t shape[3], v_shape[3];
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0) {
    fatal("cannot open %s: missing, truncated or not an HDF5 file", path);
  }
  checkpoint_shape(file, path, "u", shape);
  checkpoint_shape(file, path, "v", v_shape);
  if (memcmp(shape, v_shape, sizeof shape) != 0) {
    fatal("%s: u and v differ in shape", path);
  }
  checkpoint_attributes(s, file, path);
  simulation_create(s, shape);
  if (gpuf_h5_read(file, "u", &s->u, NULL, &error) != GPUF_OK ||
      gpuf_h5_read(file, "v", &s->v, NULL, &error) != GPUF_OK) {
    fatal("%s: %s", path, error.message);
  }
  H5Fclose(file);
}

/* --- Serving --- */

/* Let notebooks see the step that was just enqueued. The buffers change places every step. The
 * program must not run far ahead of its device, or what it says is long before what is true. */
static void serve_step(gpuf_server *server, const simulation *s) {
  if (s->step % 16 == 0) {
    CHECK(gpuf_stream_synchronize(s->device, s->stream, &error));
  }
  CHECK(gpuf_server_publish(server, "u", &s->u, NULL, &error));
  CHECK(gpuf_server_publish(server, "v", &s->v, NULL, &error));
  CHECK(gpuf_server_publish_step(server, s->step, (double)s->step * (double)s->model.dt, &error));
}

static atomic_bool is_told_to_end;

/* Called on a thread of the server: the simulation looks at the flag after each step. */
static void tell_to_end(void *arg) {
  atomic_store(&is_told_to_end, true);
}

/* With a connection file, from a kernel manager, the program is a kernel that its clients may end.
 * Otherwise they only attach and detach. */
static gpuf_server *serve_start(simulation *s, const char *name, const char *connection_file) {
  const gpuf_server_options serve_options = {.struct_nbytes = sizeof(serve_options),
                                             .name = name,
                                             .connection_file = connection_file,
                                             .jupyterlab = !connection_file,
                                             .shutdown = connection_file ? tell_to_end : NULL};
  gpuf_server *server;
  CHECK(gpuf_server_start(&serve_options, &server, &error));
  for (int i = 0; i < PARAMETER_COUNT; i++) {
    const double value = (double)*parameter(&s->model, i);
    CHECK(gpuf_server_publish_float64(server, parameters[i].name, value, &error));
  }
  serve_step(server, s);
  printf("serving: gpufetch.connect(\"%s\"), or jupyter console --existing %s\n",
         gpuf_server_name(server), gpuf_server_connection_file(server));
  fflush(stdout);
  return server;
}

/* --- Options --- */

typedef struct options {
  int64_t shape[3];
  int64_t steps, every, keep, shards;
  const char *output, *restart;
  const char *serve; /* the server's name, or NULL */
  const char *connection_file;
  gray_scott_model model;
  bool help;
  const char *fixed_by_restart; /* the last option given that a restart file decides, or NULL */
} options;

static const char usage[] =
    "usage: gray_scott [--shape NX NY NZ | --n N] [--steps N] [--every N] [--output DIR]\n"
    "                  [--keep N] [--shards N] [--Du x] [--Dv x] [--F x] [--k x] [--dt x]\n"
    "                  [--restart FILE] [--serve NAME [--connection-file FILE]]\n"
    "  --steps    run up to this time step, counted from the very start (1000)\n"
    "  --every    steps between checkpoints; 0 = only the last one (100)\n"
    "  --output   directory for gray_scott-NNNNNNNNNNNN.h5; made if missing (.)\n"
    "  --keep     checkpoints to keep, the newest; 0 = all (0)\n"
    "  --shards   files that each checkpoint is spread over, written at once (1)\n"
    "  --restart  go on from this checkpoint, with its shape and parameters\n"
    "  --serve    let notebooks attach: gpufetch.connect(\"NAME\")\n"
    "  --connection-file  serve as a kernel manager's file says, and end when it says so\n"
    "GPUFETCH_BACKEND = cuda | host | auto says what it runs on.\n";

/* Take the next value of `option` from `values`. */
static const char *take(const char *option, char ***values) {
  if (!**values) {
    fatal("%s needs %s", option, strcmp(option, "--shape") == 0 ? "three values" : "a value");
  }
  return *(*values)++;
}

static int64_t take_integer(const char *option, char ***values, int64_t least) {
  const char *text = take(option, values);
  char *end;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (errno || end == text || *end || value < least || value > INT32_MAX) {
    fatal("%s %s: expected an integer from %" PRId64 " to %d", option, text, least, INT32_MAX);
  }
  return value;
}

static float take_number(const char *option, char ***values) {
  const char *text = take(option, values);
  char *end;
  const float value = strtof(text, &end);
  if (end == text || *end || !isfinite(value) || value < 0) {
    fatal("%s %s: expected a number, 0 or more", option, text);
  }
  return value;
}

/* An option that sets the shape or a parameter, both of which a restart file fixes. */
static void parse_fixed(options *o, const char *option, char ***values) {
  o->fixed_by_restart = option;
  if (strcmp(option, "--shape") == 0) {
    for (int axis = 0; axis < 3; axis++) {
      o->shape[axis] = take_integer(option, values, 1);
    }
    return;
  }
  if (strcmp(option, "--n") == 0) {
    o->shape[0] = o->shape[1] = o->shape[2] = take_integer(option, values, 1);
    return;
  }
  for (int i = 0; i < PARAMETER_COUNT; i++) {
    if (strncmp(option, "--", 2) == 0 && strcmp(option + 2, parameters[i].name) == 0) {
      *parameter(&o->model, i) = take_number(option, values);
      return;
    }
  }
  fatal("unknown option %s (see --help)", option);
}

static void options_parse(options *o, char **values) {
  while (*values) {
    const char *option = *values++;
    if (strcmp(option, "--help") == 0) {
      o->help = true;
    } else if (strcmp(option, "--steps") == 0) {
      o->steps = take_integer(option, &values, 1);
    } else if (strcmp(option, "--every") == 0) {
      o->every = take_integer(option, &values, 0);
    } else if (strcmp(option, "--keep") == 0) {
      o->keep = take_integer(option, &values, 0);
    } else if (strcmp(option, "--shards") == 0) {
      o->shards = take_integer(option, &values, 1);
    } else if (strcmp(option, "--output") == 0) {
      o->output = take(option, &values);
    } else if (strcmp(option, "--serve") == 0) {
      o->serve = take(option, &values);
    } else if (strcmp(option, "--connection-file") == 0) {
      o->connection_file = take(option, &values);
    } else if (strcmp(option, "--restart") == 0) {
      o->restart = take(option, &values);
    } else {
      parse_fixed(o, option, &values);
    }
  }
  if (o->restart && o->fixed_by_restart) {
    fatal("%s: the restart file decides that; leave one of the two out", o->fixed_by_restart);
  }
  if (o->connection_file && !o->serve) {
    fatal("--connection-file %s: say --serve NAME too", o->connection_file);
  }
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* `server` NULL: nobody watches. */
static void run(simulation *s, const options *o, gpuf_checkpoint *checkpoint, gpuf_server *server) {
  const int64_t first = s->step, cells = gpuf_tensor_count(&s->u);
  gpuf_device_info info = GPUF_DEVICE_INFO_INIT;
  double checkpoints = 0; /* seconds */
  CHECK(gpuf_device_get_info(s->device, &info, &error));
  printf("gray_scott on %s:%d (%s): %" PRId64 " x %" PRId64 " x %" PRId64 " cells, steps %" PRId64
         " to %" PRId64 "\n",
         gpuf_device_kind_name(s->device.kind), (int)s->device.index, info.name, s->u.shape[0],
         s->u.shape[1], s->u.shape[2], first, o->steps);
  const double start = seconds_now();
  bool is_last = false;
  while (!is_last) {
    simulation_step(s);
    if (server) {
      serve_step(server, s);
    }
    is_last = s->step == o->steps || atomic_load(&is_told_to_end);
    if (is_last || (o->every && s->step % o->every == 0)) {
      CHECK(gpuf_stream_synchronize(s->device, s->stream, &error)); /* steps count as steps */
      const double began = seconds_now();
      checkpoint_write(checkpoint, s);
      checkpoints += seconds_now() - began;
    }
  }
  const double closing = seconds_now();
  checkpoints_close(checkpoint);
  checkpoints += seconds_now() - closing;
  const double steps = seconds_now() - start - checkpoints;
  printf("%.6f s for steps, %.3f s for checkpoints, %.0f million cell updates a second\n", steps,
         checkpoints, 1e-6 * (double)(s->step - first) * (double)cells / steps);
}

int main(int argc, char **argv) {
  options o = {.shape = {64, 64, 64},
               .steps = 1000,
               .every = 100,
               .shards = 1,
               .output = ".",
               .model = {0.12f, 0.06f, 0.035f, 0.06f, 1.0f}};
  simulation s = {.step = 0};
  options_parse(&o, argv + (argc > 0));
  if (o.help) {
    fputs(usage, stdout);
    return 0;
  }
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* this program reports failures in its own words */
  if (o.restart) {
    checkpoint_read(&s, o.restart);
  } else {
    s.model = o.model;
    model_check(&s.model, "options");
    simulation_create(&s, o.shape);
    simulation_seed(&s);
  }
  if (s.step >= o.steps) {
    fatal("%s is at step %" PRId64 " already: ask for more with --steps", o.restart, s.step);
  }
  if (mkdir(o.output, 0777) != 0 && errno != EEXIST) {
    fatal("--output %s: %s", o.output, strerror(errno));
  }
  gpuf_checkpoint *checkpoint = checkpoints_open(&s, o.output, o.keep, o.shards);
  gpuf_server *server = o.serve ? serve_start(&s, o.serve, o.connection_file) : NULL;
  run(&s, &o, checkpoint, server);
  CHECK(gpuf_server_stop(server, &error));
  simulation_destroy(&s);
  return 0;
}
