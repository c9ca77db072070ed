/* Snapshots: in every mode a checkpoint has what the tensors held at the commit, whatever the
 * stream does to them next. */
#include <pthread.h>
#include <stdatomic.h>

#include "checkpoint_files.h"

static const gpuf_checkpoint_mode modes[] = {
    GPUF_CHECKPOINT_DEVICE_COPY, GPUF_CHECKPOINT_DEVICE_ENCODED, GPUF_CHECKPOINT_PINNED};
enum { MODE_COUNT = sizeof(modes) / sizeof(modes[0]) };

static gpuf_checkpoint_report open_report;

static gpuf_checkpoint *open_with(const gpuf_checkpoint_options *options) {
  gpuf_checkpoint *c = NULL;
  open_report = (gpuf_checkpoint_report)GPUF_CHECKPOINT_REPORT_INIT;
  CHECK_OK(gpuf_checkpoint_open(options, &c, &open_report, &err));
  return c;
}

static void check_u(int64_t step, const gpuf_tensor *expected) {
  gpuf_restart *const r = open_restart("run", step);
  check_restarted(r, "u", expected);
  gpuf_restart_close(r);
}

static gpuf_checkpoint_options device_options(gpuf_checkpoint_mode mode, size_t state_nbytes) {
  gpuf_checkpoint_options options = options_in_folder("run");
  options.device = test_device;
  options.state_nbytes = state_nbytes;
  options.mode = mode;
  options.thread_count = 2;
  return options;
}

/* --- What the stream does ----------------------------------------------------- */

typedef struct write_args {
  void *d_dst;
  const void *bytes; /* NULL: poison */
  size_t nbytes;
  atomic_bool *gate; /* NULL: none to wait for */
} write_args;

static void write_kernel(const void *arg) {
  const write_args *const a = arg;
  while (a->gate && !atomic_load(a->gate)) {
    sched_yield();
  }
  if (a->bytes) {
    memcpy(gpuf_host_pointer(a->d_dst), a->bytes, a->nbytes);
  } else {
    memset(gpuf_host_pointer(a->d_dst), 0xee, a->nbytes);
  }
}

static void enqueue_write(gpuf_stream stream, const gpuf_tensor *dst, const void *bytes,
                          atomic_bool *gate) {
  const write_args args = {dst->data, bytes, gpuf_tensor_nbytes(dst), gate};
  CHECK_OK(gpuf_host_launch(test_device, stream, write_kernel, &args, sizeof(args), &err));
}

/* --- The same bytes ----------------------------------------------------------- */

static const int64_t shape[] = {70, 130, 150};

/* Step after step the state is written by the stream, committed, and overwritten by the stream. */
static void later_work_on_the_stream_does_not_show(void) {
  gpuf_stream stream;
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  for (int m = 0; m < MODE_COUNT; m++) {
    make_folder();
    gpuf_tensor first = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1);
    gpuf_tensor second = create_cpu(GPUF_DTYPE_UINT8, 3, shape, 2); /* noise */
    gpuf_tensor d_first = create_on_device(&first), d_second = create_on_device(&second);
    gpuf_tensor on_cpu = create_cpu(GPUF_DTYPE_FLOAT64, 3, (const int64_t[]){5, 6, 7}, 3);
    gpuf_tensor kept_cpu = create_cpu(GPUF_DTYPE_FLOAT64, 3, (const int64_t[]){5, 6, 7}, 3);
    const gpuf_checkpoint_options options =
        device_options(modes[m], gpuf_tensor_nbytes(&first) + gpuf_tensor_nbytes(&second));
    gpuf_checkpoint *const c = open_with(&options);
    CHECK(open_report.mode == modes[m]);
    CHECK((open_report.device_nbytes > 0) == (modes[m] != GPUF_CHECKPOINT_PINNED));
    for (int64_t step = 1; step <= 3; step++) {
      memcpy(on_cpu.data, kept_cpu.data, gpuf_tensor_nbytes(&on_cpu));
      enqueue_write(stream, &d_first, first.data, NULL);
      enqueue_write(stream, &d_second, second.data, NULL);
      CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
      CHECK_OK(gpuf_checkpoint_add(c, "first", &d_first, NULL, &err));
      CHECK_OK(gpuf_checkpoint_add(c, "on_cpu", &on_cpu, NULL, &err));
      CHECK_OK(gpuf_checkpoint_add(c, "second", &d_second, NULL, &err));
      CHECK_OK(gpuf_checkpoint_commit(c, stream, &err));
      enqueue_write(stream, &d_first, NULL, NULL);
      enqueue_write(stream, &d_second, NULL, NULL);
      memset(on_cpu.data, 0xee, gpuf_tensor_nbytes(&on_cpu));
    }
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    CHECK_OK(gpuf_stream_synchronize(test_device, stream, &err));
    for (int64_t step = 1; step <= 3; step++) {
      gpuf_restart *r = NULL;
      CHECK_OK(gpuf_restart_open(folder, "run", step, &r, NULL, &err));
      check_restarted(r, "first", &first);
      check_restarted(r, "on_cpu", &kept_cpu);
      check_restarted(r, "second", &second);
      gpuf_restart_close(r);
    }
    DESTROY(&first, &second, &d_first, &d_second, &on_cpu, &kept_cpu);
    remove_folder();
  }
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
}

typedef struct added {
  gpuf_checkpoint *c;
  const char *name;
  gpuf_tensor *tensor;
  const void *bytes;
  gpuf_status status;
  gpuf_error error;
} added;

/* The work that the tensor is added behind is the thread's own. */
static void *add_behind_the_threads_work(void *arg) {
  added *const a = arg;
  const write_args args = {a->tensor->data, a->bytes, gpuf_tensor_nbytes(a->tensor), NULL};
  a->tensor->stream = GPUF_STREAM_PER_THREAD;
  a->status = gpuf_host_launch(test_device, GPUF_STREAM_PER_THREAD, write_kernel, &args,
                               sizeof(args), &a->error);
  if (a->status == GPUF_OK) {
    a->status = gpuf_checkpoint_add(a->c, a->name, a->tensor, NULL, &a->error);
  }
  return NULL;
}

static void the_thread_whose_default_stream_it_is_commits(void) {
  pthread_t thread;
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1), d_u = create_on_device(&u);
  gpuf_tensor v = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 2), d_v = create_on_device(&v);
  for (int m = 0; m < MODE_COUNT; m++) {
    make_folder();
    const gpuf_checkpoint_options options = device_options(modes[m], 2 * gpuf_tensor_nbytes(&u));
    gpuf_checkpoint *const c = open_with(&options);
    added here = {.c = c, .name = "u", .tensor = &d_u, .bytes = u.data};
    added there = {.c = c, .name = "v", .tensor = &d_v, .bytes = v.data};
    CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
    CHECK(pthread_create(&thread, NULL, add_behind_the_threads_work, &there) == 0);
    pthread_join(thread, NULL);
    CHECK(there.status == GPUF_OK);
    add_behind_the_threads_work(&here);
    CHECK(here.status == GPUF_ERR_INVALID && strstr(here.error.message, "another thread"));
    CHECK_FAILS(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err), GPUF_ERR_INVALID,
                "another thread");
    CHECK_OK(gpuf_checkpoint_begin(c, 2, NULL, &err));
    add_behind_the_threads_work(&here);
    CHECK(here.status == GPUF_OK);
    d_v.stream = GPUF_STREAM_NONE;
    CHECK_OK(gpuf_checkpoint_add(c, "v", &d_v, NULL, &err));
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_PER_THREAD, &err));
    enqueue_write(GPUF_STREAM_PER_THREAD, &d_u, NULL, NULL);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    gpuf_restart *const r = open_restart("run", 2);
    check_restarted(r, "u", &u);
    check_restarted(r, "v", &v);
    gpuf_restart_close(r);
    d_u.stream = GPUF_STREAM_NONE;
    remove_folder();
  }
  DESTROY(&u, &v, &d_u, &d_v);
}

typedef struct tried_calls {
  gpuf_checkpoint *c;
  gpuf_status statuses[5];
} tried_calls;

static void checkpoint_kernel(const void *arg) {
  tried_calls *const tried = *(tried_calls *const *)arg;
  tried->statuses[0] = gpuf_checkpoint_begin(tried->c, 2, NULL, NULL);
  tried->statuses[1] = gpuf_checkpoint_commit(tried->c, GPUF_STREAM_NONE, NULL);
  tried->statuses[2] = gpuf_checkpoint_wait(tried->c, -1, NULL, NULL);
  tried->statuses[3] = gpuf_checkpoint_abort(tried->c, NULL);
  tried->statuses[4] = gpuf_checkpoint_close(tried->c, NULL, NULL);
}

/* The writer waits for the kernel, and so the kernel does not wait for the writer. */
static void calls_in_a_kernel_are_refused(void) {
  atomic_bool gate = false;
  gpuf_stream stream;
  make_folder();
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1), d_u = create_on_device(&u);
  const gpuf_checkpoint_options options =
      device_options(GPUF_CHECKPOINT_DEVICE_COPY, gpuf_tensor_nbytes(&u));
  tried_calls tried = {.c = open_with(&options)}, *const args = &tried;
  enqueue_write(stream, &d_u, u.data, &gate);
  CHECK_OK(gpuf_host_launch(test_device, stream, checkpoint_kernel, &args, sizeof(args), &err));
  CHECK_OK(gpuf_checkpoint_begin(tried.c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(tried.c, "u", &d_u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(tried.c, stream, &err));
  alarm(60);
  atomic_store(&gate, true);
  CHECK_OK(gpuf_checkpoint_close(tried.c, NULL, &err));
  alarm(0);
  for (int i = 0; i < 5; i++) {
    CHECK(tried.statuses[i] == GPUF_ERR_STATE);
  }
  check_u(1, &u);
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
  DESTROY(&u, &d_u);
  remove_folder();
}

typedef struct tried_read {
  gpuf_restart *r;
  gpuf_tensor *dst;
  gpuf_status status;
} tried_read;

static void reading_kernel(const void *arg) {
  tried_read *const tried = *(tried_read *const *)arg;
  usleep(50000); /* the program's own read has begun */
  tried->status = gpuf_restart_read(tried->r, "u", tried->dst, NULL, NULL);
}

/* A restart has one reader at a time, which may wait for the kernel. */
static void a_restart_in_a_kernel_is_refused(void) {
  gpuf_stream stream;
  make_folder();
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1), d_u = create_on_device(&u);
  gpuf_tensor other = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 2);
  const gpuf_checkpoint_options options =
      device_options(GPUF_CHECKPOINT_DEVICE_COPY, gpuf_tensor_nbytes(&u));
  gpuf_checkpoint *const c = open_with(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  tried_read tried = {.r = open_restart("run", 1), .dst = &other}, *const args = &tried;
  CHECK_OK(gpuf_host_launch(test_device, stream, reading_kernel, &args, sizeof(args), &err));
  d_u.stream = stream;
  alarm(60);
  CHECK_OK(gpuf_restart_read(tried.r, "u", &d_u, NULL, &err));
  CHECK_OK(gpuf_stream_synchronize(test_device, stream, &err));
  alarm(0);
  CHECK(tried.status == GPUF_ERR_STATE);
  gpuf_restart_close(tried.r);
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
  d_u.stream = GPUF_STREAM_NONE;
  DESTROY(&u, &d_u, &other);
  remove_folder();
}

/* Within the device, commit enqueues and does not wait for the stream. */
static void a_copy_within_the_device_does_not_wait(void) {
  atomic_bool gate = false;
  gpuf_stream stream, other;
  make_folder();
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  CHECK_OK(gpuf_stream_create(test_device, &other, &err));
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1), d_u = create_on_device(&u);
  gpuf_tensor v = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 2), d_v = create_on_device(&v);
  const gpuf_checkpoint_options options =
      device_options(GPUF_CHECKPOINT_DEVICE_COPY, 2 * gpuf_tensor_nbytes(&u));
  gpuf_checkpoint *const c = open_with(&options);
  enqueue_write(stream, &d_u, u.data, &gate);
  enqueue_write(other, &d_v, v.data, &gate); /* the tensor's own stream */
  d_v.stream = other;
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &d_u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "v", &d_v, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, stream, &err));
  enqueue_write(stream, &d_u, NULL, NULL);
  enqueue_write(stream, &d_v, NULL, NULL);
  CHECK_FAILS(gpuf_checkpoint_wait(c, 0, NULL, &err), GPUF_ERR_TIMEOUT, "step 1");
  atomic_store(&gate, true);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
  CHECK_OK(gpuf_stream_destroy(test_device, other, &err));
  d_v.stream = GPUF_STREAM_NONE;
  gpuf_restart *const r = open_restart("run", 1);
  check_restarted(r, "u", &u);
  check_restarted(r, "v", &v);
  gpuf_restart_close(r);
  DESTROY(&u, &v, &d_u, &d_v);
  remove_folder();
}

/* Give the stream a copy from memory that was freed. */
static void enqueue_failure(gpuf_stream stream) {
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1);
  gpuf_tensor to = create_on_device(&u), from = create_on_device(&u), freed = from;
  destroy(&from);
  CHECK_OK(gpuf_tensor_copy(&to, &freed, stream, &err));
  DESTROY(&u, &to);
}

/* The state is not what the program thinks: the checkpoint fails, and the one before stays. */
static void a_commit_behind_failed_work_fails(void) {
  gpuf_stream stream;
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1), d_u = create_on_device(&u);
  CHECK_OK(gpuf_copy(&d_u, &u, NULL, &err));
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  for (int i = 0; i < 2 * MODE_COUNT; i++) {
    const bool is_own = i % 2; /* the tensor's own stream, and not commit's */
    make_folder();
    const gpuf_checkpoint_options options = device_options(modes[i / 2], gpuf_tensor_nbytes(&u));
    gpuf_checkpoint *const c = open_with(&options);
    for (int64_t step = 1; step <= 3; step++) {
      gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
      if (step == 2) {
        enqueue_failure(stream);
      }
      d_u.stream = is_own ? stream : GPUF_STREAM_NONE;
      CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
      CHECK_OK(gpuf_checkpoint_add(c, "u", &d_u, NULL, &err));
      gpuf_status status = gpuf_checkpoint_commit(c, is_own ? GPUF_STREAM_NONE : stream, &err);
      if (status == GPUF_OK) {
        status = gpuf_checkpoint_wait(c, -1, &report, &err);
        status = status == GPUF_OK ? report.status : status;
      }
      CHECK(status == (step == 2 ? GPUF_ERR_DEVICE : GPUF_OK));
      CHECK(gpuf_stream_synchronize(test_device, stream, &err) ==
            (step == 2 ? GPUF_ERR_DEVICE : GPUF_OK));
      gpuf_restart *const r = open_restart("run", step == 2 ? 1 : step);
      check_restarted(r, "u", &u);
      gpuf_restart_close(r);
    }
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    remove_folder();
  }
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
  d_u.stream = GPUF_STREAM_NONE;
  DESTROY(&u, &d_u);
}

/* While one is written, begin waits, or says that it was skipped. */
static void a_busy_writer_is_waited_for_or_skipped(void) {
  atomic_bool gate = false;
  gpuf_stream stream;
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  make_folder();
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1), d_u = create_on_device(&u);
  gpuf_checkpoint_options options =
      device_options(GPUF_CHECKPOINT_DEVICE_COPY, gpuf_tensor_nbytes(&u));
  options.skip_if_busy = true;
  gpuf_checkpoint *const c = open_with(&options);
  enqueue_write(stream, &d_u, u.data, &gate);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &d_u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, stream, &err));
  CHECK_FAILS(gpuf_checkpoint_begin(c, 2, &report, &err), GPUF_ERR_TIMEOUT, "step 2 is skipped");
  CHECK(report.step == 1 && report.status == GPUF_ERR_TIMEOUT);
  CHECK_FAILS(gpuf_checkpoint_add(c, "u", &d_u, NULL, &err), GPUF_ERR_STATE, "begin");
  CHECK_FAILS(gpuf_checkpoint_commit(c, stream, &err), GPUF_ERR_STATE, "begin");
  atomic_store(&gate, true);
  CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
  CHECK(report.step == 1 && report.status == GPUF_OK);
  CHECK_OK(gpuf_checkpoint_begin(c, 3, &report, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
  DESTROY(&u, &d_u);
  remove_folder();
}

/* --- Memory ------------------------------------------------------------------- */

#define MIB ((size_t)1 << 20)

/* Noise, one MiB of which is like the other but for its first bytes. */
static gpuf_tensor create_noise(size_t mib_count) {
  const int64_t large[] = {(int64_t)mib_count, MIB};
  gpuf_tensor tensor;
  char *const bytes = malloc(mib_count * MIB);
  CHECK(bytes);
  fill_random(bytes, MIB, 5);
  for (size_t i = 1; i < mib_count; i++) {
    memcpy(bytes + i * MIB, bytes, MIB);
    memcpy(bytes + i * MIB, &i, sizeof(i));
  }
  CHECK_OK(gpuf_tensor_init(&tensor, bytes, cpu_device, GPUF_DTYPE_UINT8, 2, large, &err));
  return tensor;
}

/* More encoded chunks than the rings hold: the commit waits for the writer, and goes round. */
static void a_small_ring_holds_a_large_state(void) {
  for (int m = 1; m < MODE_COUNT; m++) {
    make_folder();
    gpuf_tensor u = create_noise(60), d_u = copy_to_device(&u), found = create_noise(60);
    const gpuf_checkpoint_options options = device_options(modes[m], 16 * MIB); /* too little */
    gpuf_checkpoint *const c = open_with(&options);
    CHECK(open_report.mode == modes[m]);
    CHECK(open_report.host_nbytes == 33 * MIB);
    CHECK(open_report.device_nbytes == (m == 1 ? 17 * MIB : 0));
    CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
    CHECK_OK(gpuf_checkpoint_add(c, "u", &d_u, NULL, &err));
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
    destroy(&d_u); /* it has been read */
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    gpuf_restart *const r = open_restart("run", 1);
    memset(found.data, 0x5a, gpuf_tensor_nbytes(&found));
    CHECK_OK(gpuf_restart_read(r, "u", &found, NULL, &err));
    CHECK(memcmp(found.data, u.data, gpuf_tensor_nbytes(&u)) == 0);
    gpuf_restart_close(r);
    DESTROY(&u, &found);
    remove_folder();
  }
}

/* Copies as far as they fit; the rest is encoded. */
static void a_state_larger_than_was_said_is_kept_all_the_same(void) {
  char says[60];
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  make_folder();
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1), d_u = copy_to_device(&u);
  gpuf_tensor v = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 2), d_v = copy_to_device(&v);
  const gpuf_checkpoint_options options =
      device_options(GPUF_CHECKPOINT_AUTO, gpuf_tensor_nbytes(&u));
  gpuf_checkpoint *const c = open_with(&options);
  CHECK(open_report.mode == GPUF_CHECKPOINT_DEVICE_COPY);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &d_u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "v", &d_v, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, &report, &err));
  snprintf(says, sizeof(says), "take %zu bytes", 2 * gpuf_tensor_nbytes(&u));
  CHECK(report.status == GPUF_OK && strstr(report.message, says));
  gpuf_restart *const r = open_restart("run", 1);
  check_restarted(r, "u", &u);
  check_restarted(r, "v", &v);
  gpuf_restart_close(r);
  DESTROY(&u, &v, &d_u, &d_v);
  remove_folder();
}

/* Views with gaps, reversed and permuted ones, one at an odd address, and one of another device. */
static void every_layout_comes_back(void) {
  for (int m = 0; m < MODE_COUNT; m++) {
    make_folder();
    gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1);
    gpuf_tensor d_u = copy_to_device(&u), views[4], d_views[4];
    gpuf_tensor bytes = create_cpu(GPUF_DTYPE_UINT8, 1, (const int64_t[]){100001}, 2);
    gpuf_tensor d_bytes = copy_to_device(&bytes);
    char name[20];
    views[0] = views[1] = views[2] = u;
    d_views[0] = d_views[1] = d_views[2] = d_u;
    CHECK_OK(gpuf_tensor_slice(&views[0], 2, 1, 3, 40, &err));
    CHECK_OK(gpuf_tensor_slice(&d_views[0], 2, 1, 3, 40, &err));
    CHECK_OK(gpuf_tensor_slice(&views[1], 0, 69, -1, 70, &err));
    CHECK_OK(gpuf_tensor_slice(&d_views[1], 0, 69, -1, 70, &err));
    for (int axis = 0; axis < 2; axis++) {
      views[2].shape[axis] = d_views[2].shape[axis] = shape[1 - axis];
      views[2].strides_nbytes[axis] = d_views[2].strides_nbytes[axis] = u.strides_nbytes[1 - axis];
    }
    views[3] = bytes;
    d_views[3] = d_bytes;
    views[3].dtype = d_views[3].dtype = GPUF_DTYPE_INT32;
    views[3].data = (char *)views[3].data + 1;
    d_views[3].data = (char *)d_views[3].data + 1;
    views[3].shape[0] = d_views[3].shape[0] = 25000;
    views[3].strides_nbytes[0] = d_views[3].strides_nbytes[0] = 4;
    const gpuf_checkpoint_options options = device_options(modes[m], 4 * gpuf_tensor_nbytes(&u));
    gpuf_checkpoint *const c = open_with(&options);
    CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
    for (int i = 0; i < 4; i++) {
      snprintf(name, sizeof(name), "view%d", i);
      CHECK_OK(gpuf_checkpoint_add(c, name, &d_views[i], NULL, &err));
      snprintf(name, sizeof(name), "cpu%d", i);
      CHECK_OK(gpuf_checkpoint_add(c, name, &views[i], NULL, &err));
    }
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    gpuf_restart *const r = open_restart("run", 1);
    for (int i = 0; i < 4; i++) {
      gpuf_tensor packed = create_cpu(views[i].dtype, views[i].ndim, views[i].shape, 9);
      CHECK_OK(gpuf_copy(&packed, &views[i], NULL, &err));
      snprintf(name, sizeof(name), "view%d", i);
      check_restarted(r, name, &packed);
      snprintf(name, sizeof(name), "cpu%d", i);
      check_restarted(r, name, &packed);
      destroy(&packed);
    }
    gpuf_restart_close(r);
    DESTROY(&u, &d_u, &bytes, &d_bytes);
    remove_folder();
  }
}

static void the_mode_is_what_there_is_memory_for(void) {
  static const struct {
    gpuf_checkpoint_mode mode;
    size_t state_nbytes, device_max_nbytes;
    bool uncompressed;
    gpuf_status status;
    gpuf_checkpoint_mode chosen;
  } cases[] = {
      {GPUF_CHECKPOINT_AUTO, 0, 0, false, GPUF_OK, GPUF_CHECKPOINT_PINNED},
      {GPUF_CHECKPOINT_AUTO, 8 << 20, 0, false, GPUF_OK, GPUF_CHECKPOINT_DEVICE_COPY},
      {GPUF_CHECKPOINT_AUTO, 8 << 20, 8 << 20, false, GPUF_OK, GPUF_CHECKPOINT_DEVICE_ENCODED},
      {GPUF_CHECKPOINT_AUTO, 8 << 20, 1 << 20, false, GPUF_OK, GPUF_CHECKPOINT_PINNED},
      {GPUF_CHECKPOINT_AUTO, 8 << 20, 8 << 20, true, GPUF_OK, GPUF_CHECKPOINT_PINNED},
      {GPUF_CHECKPOINT_PINNED, 8 << 20, 0, false, GPUF_OK, GPUF_CHECKPOINT_PINNED},
      {GPUF_CHECKPOINT_DEVICE_COPY, 8 << 20, 8 << 20, false, GPUF_ERR_NO_DEVICE_MEMORY, 0},
      {GPUF_CHECKPOINT_DEVICE_COPY, 0, 0, false, GPUF_ERR_INVALID, 0},
      {GPUF_CHECKPOINT_DEVICE_ENCODED, 0, 0, false, GPUF_ERR_INVALID, 0},
      {GPUF_CHECKPOINT_DEVICE_ENCODED, 8 << 20, 0, true, GPUF_ERR_INVALID, 0},
      {GPUF_CHECKPOINT_DEVICE_ENCODED, 8 << 20, 1 << 20, false, GPUF_ERR_NO_DEVICE_MEMORY, 0},
      {GPUF_CHECKPOINT_DEVICE_COPY, SIZE_MAX, 0, false, GPUF_ERR_INVALID, 0},
  };
  make_folder();
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    gpuf_checkpoint *c = NULL;
    gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
    gpuf_checkpoint_options options = device_options(cases[i].mode, cases[i].state_nbytes);
    options.device_max_nbytes = cases[i].device_max_nbytes;
    options.uncompressed = cases[i].uncompressed;
    const gpuf_status status = gpuf_checkpoint_open(&options, &c, &report, &err);
    if (status != cases[i].status || (status == GPUF_OK && report.mode != cases[i].chosen)) {
      printf("# case %zu: %s, mode %d\n", i, gpuf_status_name(status), (int)report.mode);
    }
    CHECK(status == cases[i].status);
    CHECK(status != GPUF_OK || report.mode == cases[i].chosen);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  }
  gpuf_checkpoint *c = NULL;
  gpuf_checkpoint_options options = device_options(GPUF_CHECKPOINT_PINNED, 0);
  options.host_max_nbytes = 1 << 20;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID,
              "raise it, or leave it 0");
  options = device_options(GPUF_CHECKPOINT_PINNED, 0);
  options.device.index = 77;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_NO_DEVICE, "77");
  options = device_options(GPUF_CHECKPOINT_DEVICE_COPY, 1);
  options.device = cpu_device;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID, "the CPU");
  remove_folder();
}

static void a_stream_without_a_device_is_refused(void) {
  gpuf_stream stream;
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  make_folder();
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1), d_u = copy_to_device(&u);
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_with(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &d_u, NULL, &err));
  CHECK_FAILS(gpuf_checkpoint_commit(c, stream, &err), GPUF_ERR_INVALID, "options.device");
  CHECK_FAILS(gpuf_checkpoint_wait(c, -1, &report, &err), GPUF_ERR_INVALID, "options.device");
  CHECK(report.step == 1 && report.status == GPUF_ERR_INVALID && count_files(".tmp", false) == 0);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, &report, &err)); /* the next one may be begun */
  CHECK(report.status == GPUF_ERR_INVALID);
  CHECK_OK(gpuf_checkpoint_add(c, "u", &d_u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  check_u(1, &u);
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
  DESTROY(&u, &d_u);
  remove_folder();
}

int main(void) {
  test_device = host_device;
  TEST(later_work_on_the_stream_does_not_show);
  TEST(the_thread_whose_default_stream_it_is_commits);
  TEST(calls_in_a_kernel_are_refused);
  TEST(a_restart_in_a_kernel_is_refused);
  TEST(a_copy_within_the_device_does_not_wait);
  TEST(a_commit_behind_failed_work_fails);
  TEST(a_busy_writer_is_waited_for_or_skipped);
  TEST(a_small_ring_holds_a_large_state);
  TEST(a_state_larger_than_was_said_is_kept_all_the_same);
  TEST(every_layout_comes_back);
  TEST(the_mode_is_what_there_is_memory_for);
  TEST(a_stream_without_a_device_is_refused);
  return test_finish();
}
