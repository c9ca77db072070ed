/* Checkpoints and restarts with the n-th call of a kind failing, for every n: a checkpoint that is
 * reported as finished restarts bit for bit, and after a failure the one before does. */
#include <gpufetch/checkpoint.h>
#include <hdf5.h>
#include <math.h>
#include <stdio.h>

#include "fault_cases.h"

#define ROWS 300
#define COLUMNS 1000
#define COUNT ((size_t)ROWS * COLUMNS)

static float values[COUNT], result[COUNT];
static gpuf_tensor d_tensor, d_target;
static char folder[] = "/tmp/gpufetch-test-XXXXXX";

static const int64_t shape[] = {ROWS, COLUMNS};

static gpuf_tensor cpu_tensor(float *data) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, data, cpu_device, GPUF_DTYPE_FLOAT32, 2, shape, &err));
  return tensor;
}

static gpuf_checkpoint_options options_for(gpuf_checkpoint_mode mode) {
  gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
  options.directory = folder;
  options.prefix = "run";
  options.thread_count = 2;
  options.mode = mode;
  if (mode != GPUF_CHECKPOINT_AUTO) {
    options.device = host_device;
    options.state_nbytes = sizeof(values);
  }
  return options;
}

static void prepare(void) {
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 2, shape, &d_tensor, &err));
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 2, shape, &d_target, &err));
  access_device(d_tensor.data, values, sizeof(values), true);
  CHECK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0);
}

/* --- Restarts ------------------------------------------------------------------ */

/* The newest checkpoint up to a step; -1: there is none, or it is wrong. */
static int64_t restarted_step(int64_t step_max) {
  gpuf_restart *r = NULL;
  int64_t step = -1;
  const gpuf_tensor dst = cpu_tensor(result);
  CHECK_OK(gpuf_restart_open(folder, "run", step_max, &r, NULL, &err));
  CHECK(r);
  memset(result, 0xa5, sizeof(result));
  CHECK_OK(gpuf_restart_read(r, "u", &dst, NULL, &err));
  CHECK_OK(gpuf_restart_get_int64(r, "step", &step, &err));
  gpuf_restart_close(r);
  return memcmp(result, values, sizeof(values)) == 0 ? step : -1;
}

static gpuf_status restart_to(const gpuf_tensor *dst, bool *right) {
  gpuf_restart *r = NULL;
  int64_t step = -1;
  gpuf_status status = gpuf_restart_open(folder, "run", 1, &r, NULL, &err);
  *right = status != GPUF_OK || r;
  if (status == GPUF_OK && r) {
    status = gpuf_restart_read(r, "u", dst, NULL, &err);
  }
  if (status == GPUF_OK && r) {
    status = gpuf_restart_get_int64(r, "step", &step, &err);
    *right = step == 1;
  }
  gpuf_restart_close(r);
  faults_disarm();
  return status;
}

static gpuf_status restart_on_cpu(bool *right) {
  const gpuf_tensor dst = cpu_tensor(result);
  memset(result, 0xa5, sizeof(result));
  const gpuf_status status = restart_to(&dst, right);
  *right = *right && memcmp(result, values, sizeof(values)) == 0;
  return status;
}

static gpuf_status restart_on_device(bool *right) {
  const gpuf_status status = restart_to(&d_target, right);
  memset(result, 0xa5, sizeof(result));
  access_device(d_target.data, result, sizeof(result), false);
  *right = *right && memcmp(result, values, sizeof(values)) == 0;
  return status;
}

/* --- Checkpoints ----------------------------------------------------------------- */

static bool adds_halves;

/* Two parts of one array. */
static gpuf_status add_halves(gpuf_checkpoint *c, const gpuf_tensor *u) {
  gpuf_status status = GPUF_OK;
  for (int half = 0; half < 2 && status == GPUF_OK; half++) {
    gpuf_tensor view = *u;
    gpuf_part part = GPUF_PART_INIT;
    memcpy(part.shape, u->shape, sizeof(part.shape));
    part.start[0] = half ? u->shape[0] / 2 : 0;
    CHECK_OK(gpuf_tensor_slice(&view, 0, part.start[0], 1,
                               half ? u->shape[0] - part.start[0] : u->shape[0] / 2, &err));
    status = gpuf_checkpoint_add(c, "u", &view, &part, &err);
  }
  return status;
}

static gpuf_status checkpoint(gpuf_checkpoint *c, int64_t step, const gpuf_tensor *u) {
  gpuf_status status = gpuf_checkpoint_begin(c, step, NULL, &err);
  if (status == GPUF_OK) {
    status = adds_halves ? add_halves(c, u) : gpuf_checkpoint_add(c, "u", u, NULL, &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_add_int64(c, "step", step, &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_add_text(c, "note", "some text", &err);
  }
  return status == GPUF_OK ? gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err) : status;
}

static gpuf_status write_step(const gpuf_checkpoint_options *options, int64_t step,
                              const gpuf_tensor *u) {
  gpuf_checkpoint *c = NULL;
  gpuf_error close_error;
  gpuf_status status = gpuf_checkpoint_open(options, &c, NULL, &err);
  if (status == GPUF_OK) {
    status = checkpoint(c, step, u);
    const gpuf_status closed = gpuf_checkpoint_close(c, NULL, &close_error);
    if (status == GPUF_OK && closed != GPUF_OK) {
      status = closed;
      err = close_error;
    }
  }
  return status;
}

/* The files of the folder whose names begin so. */
static int count_named(const char *begin, bool removes) {
  char path[400];
  int count = 0;
  faults_disarm();
  DIR *const entries = opendir(folder);
  CHECK(entries);
  for (const struct dirent *entry; (entry = readdir(entries));) {
    if (strncmp(entry->d_name, begin, strlen(begin)) == 0) {
      count++;
      snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
      if (removes) {
        unlink(path);
      }
    }
  }
  closedir(entries);
  return count;
}

static bool has_temporary(void) {
  char path[100];
  snprintf(path, sizeof(path), "%s/.run-000000000002.h5.tmp", folder);
  return access(path, F_OK) == 0;
}

/* Step 1 is there before, and stays; step 2 is written. */
static gpuf_status judge(gpuf_status status, bool *right) {
  faults_disarm();
  const gpuf_error cause = err;
  const int64_t newest = restarted_step(-1);
  *right = newest == 2 || (newest == 1 && status != GPUF_OK);
  *right = *right && restarted_step(1) == 1 && (status != GPUF_OK || !has_temporary());
  const int file_count = count_named("run-000000000002", true);
  *right = *right && (status != GPUF_OK || file_count == 1 || file_count == 3);
  if (!*right) {
    printf("# step %d after %s\n", (int)newest, gpuf_status_name(status));
  }
  err = cause;
  return *right ? status : GPUF_OK;
}

static gpuf_status write_from_cpu(bool *right) {
  const gpuf_checkpoint_options options = options_for(GPUF_CHECKPOINT_AUTO);
  const gpuf_tensor u = cpu_tensor(values);
  return judge(write_step(&options, 2, &u), right);
}

static gpuf_status write_plain_and_keep_all(bool *right) {
  gpuf_checkpoint_options options = options_for(GPUF_CHECKPOINT_AUTO);
  const gpuf_tensor u = cpu_tensor(values);
  options.uncompressed = options.replace = true;
  options.keep_count = 2;
  return judge(write_step(&options, 2, &u), right);
}

static gpuf_status write_copied(bool *right) {
  const gpuf_checkpoint_options options = options_for(GPUF_CHECKPOINT_DEVICE_COPY);
  return judge(write_step(&options, 2, &d_tensor), right);
}

static gpuf_status write_halves(bool *right) {
  const gpuf_checkpoint_options options = options_for(GPUF_CHECKPOINT_PINNED);
  adds_halves = true;
  const gpuf_status status = write_step(&options, 2, &d_tensor);
  adds_halves = false;
  return judge(status, right);
}

static gpuf_status write_encoded(bool *right) {
  const gpuf_checkpoint_options options = options_for(GPUF_CHECKPOINT_DEVICE_ENCODED);
  return judge(write_step(&options, 2, &d_tensor), right);
}

static gpuf_status write_pinned(bool *right) {
  const gpuf_checkpoint_options options = options_for(GPUF_CHECKPOINT_PINNED);
  return judge(write_step(&options, 2, &d_tensor), right);
}

static gpuf_status write_shards(gpuf_checkpoint_mode mode, const gpuf_tensor *u, bool *right) {
  gpuf_checkpoint_options options = options_for(mode);
  options.shard_count = 2;
  options.keep_count = 2;
  return judge(write_step(&options, 2, u), right);
}

static gpuf_status write_shards_from_cpu(bool *right) {
  const gpuf_tensor u = cpu_tensor(values);
  return write_shards(GPUF_CHECKPOINT_AUTO, &u, right);
}

static gpuf_status write_encoded_shards(bool *right) {
  return write_shards(GPUF_CHECKPOINT_DEVICE_ENCODED, &d_tensor, right);
}

/* Steps 1, 2 and 3 of a prefix of its own, of which the third is written over the first. What was
 * finished last is the newest, and whole. */
static gpuf_status write_cycle(size_t shard_count, bool *right) {
  gpuf_checkpoint_options options = options_for(GPUF_CHECKPOINT_DEVICE_COPY);
  options.shard_count = shard_count;
  gpuf_checkpoint *c = NULL;
  gpuf_restart *r = NULL;
  int64_t finished = 0;
  options.prefix = "cycle";
  options.recycle = true;
  options.keep_count = 1;
  gpuf_status status = gpuf_checkpoint_open(&options, &c, NULL, &err);
  for (int64_t step = 1; step <= 3 && status == GPUF_OK; step++) {
    status = checkpoint(c, step, &d_tensor);
    status = status == GPUF_OK ? gpuf_checkpoint_wait(c, -1, NULL, &err) : status;
    finished = status == GPUF_OK ? step : finished;
  }
  const gpuf_error cause = err;
  faults_disarm();
  if (c) {
    gpuf_checkpoint_close(c, NULL, NULL);
  }
  CHECK_OK(gpuf_restart_open(folder, "cycle", -1, &r, NULL, &err));
  const gpuf_tensor dst = cpu_tensor(result);
  int64_t step = 0;
  if (r) {
    memset(result, 0xa5, sizeof(result));
    CHECK_OK(gpuf_restart_read(r, "u", &dst, NULL, &err));
    CHECK_OK(gpuf_restart_get_int64(r, "step", &step, &err));
  }
  *right = step >= finished && (!r || memcmp(result, values, sizeof(values)) == 0);
  gpuf_restart_close(r);
  count_named("cycle", true);
  count_named(".cycle", true);
  err = cause;
  return *right ? status : GPUF_OK;
}

static gpuf_status write_recycled(bool *right) {
  return write_cycle(0, right);
}

static gpuf_status write_recycled_shards(bool *right) {
  return write_cycle(2, right);
}

/* --- Restarts from shards -------------------------------------------------------- */

static gpuf_status restart_from_shards(bool *right) {
  gpuf_restart *r = NULL;
  const gpuf_tensor dst = cpu_tensor(result);
  memset(result, 0xa5, sizeof(result));
  gpuf_status status = gpuf_restart_open(folder, "sharded", -1, &r, NULL, &err);
  *right = status != GPUF_OK || r;
  if (status == GPUF_OK && r) {
    status = gpuf_restart_read(r, "u", &dst, NULL, &err);
  }
  gpuf_restart_close(r);
  faults_disarm();
  *right = *right && memcmp(result, values, sizeof(values)) == 0;
  return status;
}

static const operation operations[] = {
    {"write from the CPU", write_from_cpu, false},
    {"write without a filter", write_plain_and_keep_all, true},
    {"write a copy on the device", write_copied, false},
    {"write what the device encodes", write_encoded, false},
    {"write parts", write_halves, false},
    {"write over older files", write_recycled, false},
    {"write through page-locked memory", write_pinned, true},
    {"write shards from the CPU", write_shards_from_cpu, false},
    {"write shards that the device encodes", write_encoded_shards, true},
    {"write over older shards", write_recycled_shards, true},
    {"restart from shards", restart_from_shards, false},
    {"restart on the CPU", restart_on_cpu, false},
    {"restart on the device", restart_on_device, false},
};

/* By a child, since the parent must use no device and no thread. */
static void a_first_checkpoint_is_written(void) {
  CHECK(mkdtemp(folder));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    gpuf_checkpoint_options options = options_for(GPUF_CHECKPOINT_AUTO);
    const gpuf_tensor u = cpu_tensor(values);
    const bool is_written = write_step(&options, 1, &u) == GPUF_OK;
    options.prefix = "sharded";
    options.shard_count = 2;
    _exit(!is_written || write_step(&options, 1, &u) != GPUF_OK ||
          count_named("sharded", false) != 3);
  }
  CHECK(wait_for_child(child) == 0);
}

int main(void) {
  for (size_t i = 0; i < COUNT; i++) {
    values[i] = sinf((float)(i % COLUMNS) / 50.0F) + (float)(i / COLUMNS);
  }
  test_run("a first checkpoint is written", a_first_checkpoint_is_written);
  const int failed =
      run_operations(operations, sizeof(operations) / sizeof(operations[0]), prepare);
  static const char *const left[] = {"run", ".run", "sharded", ".sharded"};
  for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
    count_named(left[i], true);
  }
  rmdir(folder);
  return failed;
}
