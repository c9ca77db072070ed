/* Sharing between processes: what must work, and who may die. */
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "share_fixture.h"

/* --- What must work ------------------------------------------------------------ */

static void another_process_sees_and_writes_the_same_elements(void) {
  shared s = share_some();
  worker w = worker_start();
  WORKER_OK(&w, "attach %s", s.text);
  check_hash(&w, 0, &s.tensor);
  WORKER_OK(&w, "fill 0 65");
  check_hash(&w, 0, &s.tensor);
  WORKER_OK(&w, "check 0");
  WORKER_OK(&w, "detach 0");
  end_share(&s);
  worker_stop(&w);
}

static void a_view_of_a_suballocation_arrives_as_that_view(void) {
  const int64_t shape[3] = {20, 30, 40};
  shared s = share_floats(3, shape, 5000);
  CHECK_OK(gpuf_unshare(&s.handle, 0, NULL, &err));
  CHECK_OK(gpuf_tensor_slice(&s.tensor, 1, 28, -3, 9, &err));
  CHECK_OK(gpuf_tensor_slice(&s.tensor, 2, 1, 2, 20, &err));
  share_tensor(&s, NULL);
  check_arrives(&s);
}

/* CUDA's driver puts small allocations into one of its own; ours have a page each. */
static void small_allocations_are_not_mistaken_for_each_other(void) {
  const int64_t shape[1] = {100};
  shared s[3];
  worker w = worker_start();
  for (int i = 0; i < 3; i++) {
    s[i].d_ptr = device_bytes(400, 11 + (uint64_t)i);
    CHECK_OK(
        gpuf_tensor_init(&s[i].tensor, s[i].d_ptr, test_device, GPUF_DTYPE_INT32, 1, shape, &err));
    share_tensor(&s[i], NULL);
    WORKER_OK(&w, "attach %s", s[i].text);
  }
  for (int i = 0; i < 3; i++) {
    check_hash(&w, i, &s[i].tensor);
  }
  WORKER_OK(&w, "detach 1");
  check_hash(&w, 2, &s[2].tensor);
  worker_stop(&w);
  for (int i = 0; i < 3; i++) {
    end_share(&s[i]);
  }
}

static void two_shares_of_one_allocation_are_open_at_once(void) {
  const int64_t shape[1] = {1000};
  shared first = share_floats(1, shape, 0), second = first;
  second.tensor.data = (char *)first.tensor.data + 100000;
  share_tensor(&second, NULL);
  worker w = worker_start();
  WORKER_OK(&w, "attach %s", first.text);
  WORKER_OK(&w, "attach %s", second.text);
  check_hash(&w, 0, &first.tensor);
  WORKER_OK(&w, "detach 0");
  check_hash(&w, 1, &second.tensor);
  CHECK(importers(&first) == 0 || gpuf_unshare(&first.handle, WAIT_NS, NULL, &err) == GPUF_OK);
  worker_stop(&w);
  CHECK_OK(gpuf_unshare(&second.handle, WAIT_NS, NULL, &err));
  end_share(&first);
}

static void a_tensor_without_elements_can_be_shared(void) {
  const int64_t shape[2] = {0, 7};
  shared s = {0};
  CHECK_OK(gpuf_tensor_init(&s.tensor, NULL, test_device, GPUF_DTYPE_BFLOAT16, 2, shape, &err));
  share_tensor(&s, NULL);
  check_arrives(&s);
}

static void the_exporter_itself_gets_the_original(void) {
  shared s = share_some();
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  CHECK_OK(gpuf_attach(&s.handle, &attachment, &tensor, &err));
  CHECK(tensor.data == s.tensor.data && memcmp(&tensor, &s.tensor, sizeof(tensor)) == 0);
  CHECK(importers(&s) == 1);
  CHECK_OK(gpuf_attachment_check(attachment, &err));
  CHECK_FAILS(gpuf_unshare(&s.handle, 0, NULL, &err), GPUF_ERR_TIMEOUT, "1 attachments");
  CHECK_OK(gpuf_detach(attachment, &err));
  end_share(&s);
}

static void two_importers_are_counted(void) {
  shared s = share_some();
  worker a = worker_start(), b = worker_start();
  int32_t left = 0;
  WORKER_OK(&a, "attach %s", s.text);
  WORKER_OK(&b, "attach %s", s.text);
  WORKER_OK(&b, "attach %s", s.text);
  CHECK(importers(&s) == 3);
  CHECK_FAILS(gpuf_unshare(&s.handle, 0, &left, &err), GPUF_ERR_TIMEOUT, "3 attachments");
  CHECK(left == 3);
  check_hash(&a, 0, &s.tensor);
  worker_stop(&a);
  check_hash(&b, 1, &s.tensor);
  worker_stop(&b);
  end_share(&s);
}

static int release_count;
static void count_release(void *arg) {
  __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static void memory_is_released_once_and_after_the_last_importer(void) {
  shared s = share_some();
  const gpuf_share_options options = {
      .struct_nbytes = sizeof(options), .release = count_release, .release_arg = &release_count};
  worker w = worker_start();
  CHECK_OK(gpuf_unshare(&s.handle, 0, NULL, &err));
  share_tensor(&s, &options);
  release_count = 0;
  WORKER_OK(&w, "attach %s", s.text);
  CHECK_FAILS(gpuf_free(test_device, s.d_ptr, &err), GPUF_ERR_STATE, "1 attached");
  CHECK_FAILS(gpuf_unshare(&s.handle, 0, NULL, &err), GPUF_ERR_TIMEOUT, "1 attachments");
  CHECK_FAILS(gpuf_free(test_device, s.d_ptr, &err), GPUF_ERR_STATE, "gpuf_unshare");
  check_hash(&w, 0, &s.tensor);
  CHECK(__atomic_load_n(&release_count, __ATOMIC_SEQ_CST) == 0);
  WORKER_OK(&w, "detach 0");
  CHECK_OK(gpuf_unshare(&s.handle, WAIT_NS, NULL, &err));
  CHECK(__atomic_load_n(&release_count, __ATOMIC_SEQ_CST) == 1);
  worker_stop(&w);
  end_share(&s);
}

static void a_copy_is_shared_without_the_original(void) {
  const int64_t shape[2] = {30, 100};
  const gpuf_share_options options = {.struct_nbytes = sizeof(options), .copy = true};
  shared s = share_floats(2, shape, 40);
  uint64_t hash;
  char text[32];
  CHECK_OK(gpuf_unshare(&s.handle, 0, NULL, &err));
  CHECK_OK(gpuf_tensor_slice(&s.tensor, 1, 99, -7, 12, &err));
  CHECK_OK(tensor_hash(&s.tensor, &hash, &err));
  snprintf(text, sizeof(text), "%llx", (unsigned long long)hash);
  share_tensor(&s, &options);
  CHECK_OK(gpuf_free(test_device, s.d_ptr, &err));
  worker w = worker_start();
  WORKER_OK(&w, "attach %s", s.text);
  WORKER_OK(&w, "hash 0");
  CHECK(strcmp(w.answer, text) == 0);
  worker_stop(&w);
  CHECK_OK(gpuf_unshare(&s.handle, WAIT_NS, NULL, &err));
}

static void cycles_leave_no_descriptor_and_no_thread(void) {
  shared s = share_some();
  worker w = worker_start();
  char before[64];
  WORKER_OK(&w, "cycle %s 3", s.text);
  WORKER_OK(&w, "resources");
  strcpy(before, w.answer);
  const int descriptors = count_entries("/proc/self/fd"),
            threads = count_entries("/proc/self/task");
  WORKER_OK(&w, "cycle %s 200", s.text);
  WORKER_OK(&w, "resources");
  CHECK(strcmp(before, w.answer) == 0);
  WORKER_OK(&w, "attach %s", s.text); /* one connection in, none out before this is answered */
  CHECK(importers(&s) == 1);
  CHECK(count_entries("/proc/self/fd") <= descriptors + 1);
  CHECK(count_entries("/proc/self/task") == threads);
  worker_stop(&w);
  end_share(&s);
  worker again = worker_start(); /* with its two pipes; the old ones and all connections are gone */
  CHECK(count_entries("/proc/self/fd") <= descriptors);
  worker_stop(&again);
}

typedef struct thread_work {
  const gpuf_tensor *own; /* to share, attach and unshare */
  const gpuf_share_handle *other;
  gpuf_status status;
  gpuf_error error;
} thread_work;

static void *share_and_attach(void *arg) {
  thread_work *work = arg;
  gpuf_error *const error = &work->error;
  gpuf_share_handle handle;
  gpuf_attachment *own, *other;
  gpuf_tensor tensor;
  for (int i = 0; i < 50 && work->status == GPUF_OK; i++) {
    if ((work->status = gpuf_share(work->own, NULL, &handle, error)) != GPUF_OK ||
        (work->status = gpuf_attach(&handle, &own, &tensor, error)) != GPUF_OK ||
        (work->status = gpuf_attach(work->other, &other, &tensor, error)) != GPUF_OK ||
        (work->status = gpuf_attachment_check(other, error)) != GPUF_OK ||
        (work->status = gpuf_detach(other, error)) != GPUF_OK ||
        (work->status = gpuf_detach(own, error)) != GPUF_OK) {
      break;
    }
    work->status = gpuf_unshare(&handle, WAIT_NS, NULL, error);
  }
  return NULL;
}

static void threads_share_and_attach_at_once(void) {
  shared s = share_some();
  worker w = worker_start();
  const gpuf_share_handle other = share_of_worker(&w);
  pthread_t threads[4];
  thread_work work[4];
  for (int i = 0; i < 4; i++) {
    work[i] = (thread_work){&s.tensor, &other, GPUF_OK, {0}};
    CHECK(pthread_create(&threads[i], NULL, share_and_attach, &work[i]) == 0);
  }
  WORKER_OK(&w, "cycle %s 50", s.text);
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < 4; i++) {
    err = work[i].error;
    CHECK_OK(work[i].status);
  }
  CHECK(importers(&s) == 0 || gpuf_unshare(&s.handle, WAIT_NS, NULL, &err) == GPUF_OK);
  worker_stop(&w);
  end_share(&s);
}

/* --- Who dies ------------------------------------------------------------------- */

static void a_killed_importer_gives_its_references_back(void) {
  shared s = share_some();
  worker w = worker_start();
  WORKER_OK(&w, "attach %s", s.text);
  WORKER_OK(&w, "attach %s", s.text);
  CHECK(importers(&s) == 2);
  worker_kill(&w);
  end_share(&s);
}

static void an_exporter_killed_before_attach_is_gone(void) {
  worker w = worker_start();
  const gpuf_share_handle handle = share_of_worker(&w);
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  worker_kill(&w);
  CHECK_FAILS(gpuf_attach(&handle, &attachment, &tensor, &err), GPUF_ERR_STATE, "is gone");
}

/* Its parent has not waited for it yet, and so may it stay for long. */
static void an_exporter_that_was_killed_and_not_reaped_is_gone(void) {
  worker w = worker_start();
  const gpuf_share_handle handle = share_of_worker(&w);
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  siginfo_t info;
  kill(w.pid, SIGKILL);
  CHECK(TEMP_FAILURE_RETRY(waitid(P_PID, (id_t)w.pid, &info, WEXITED | WNOWAIT)) == 0);
  const gpuf_status status = gpuf_attach(&handle, &attachment, &tensor, &err);
  worker_stop(&w);
  CHECK(status == GPUF_ERR_STATE && strstr(err.message, "is gone"));
}

static void an_exporter_killed_while_attached_is_reported(void) {
  attached a = attach_to_worker();
  CHECK_OK(gpuf_attachment_check(a.attachment, &err));
  worker_kill(&a.w);
  CHECK_FAILS(gpuf_attachment_check(a.attachment, &err), GPUF_ERR_STATE, "is gone");
  gpuf_attachment *second;
  CHECK_FAILS(gpuf_attach(&a.handle, &second, &a.tensor, &err), GPUF_ERR_STATE, "is gone");
  CHECK_OK(gpuf_detach(a.attachment, &err));
}

/* The child has the sockets' descriptors when it is forked; it must not keep them. */
static void a_forked_child_does_not_keep_a_dead_exporter_alive(void) {
  attached a = attach_to_worker();
  WORKER_OK(&a.w, "fork");
  const pid_t child = atoi(a.w.answer);
  CHECK(child > 0);
  worker_kill(&a.w);
  const gpuf_status status = gpuf_attachment_check(a.attachment, &err);
  kill(child, SIGKILL);
  CHECK(status == GPUF_ERR_STATE);
  CHECK_OK(gpuf_detach(a.attachment, &err));
}

static void a_forked_child_does_not_keep_a_dead_importers_references(void) {
  shared s = share_some();
  worker w = worker_start();
  WORKER_OK(&w, "attach %s", s.text);
  WORKER_OK(&w, "fork");
  const pid_t child = atoi(w.answer);
  CHECK(child > 0);
  worker_kill(&w);
  const gpuf_status status = gpuf_unshare(&s.handle, WAIT_NS, NULL, &err);
  kill(child, SIGKILL);
  CHECK(status == GPUF_OK);
  end_share(&s);
}

/* Some calls take less time than the way to the handler and back, so there are many. */
/* A child holds the exporter's descriptors until its exec, and fork's handlers do not run in those
 * of posix_spawn: this one never comes to it. */
static void an_importer_ends_while_a_child_of_the_exporter_holds_its_connection(void) {
  shared s = share_some();
  int held[2], importer_count = 1;
  char byte;
  worker w = worker_start();
  WORKER_OK(&w, "attach %s", s.text);
  CHECK(pipe2(held, O_CLOEXEC) == 0);
  const long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (child == 0) {
    close(held[1]);
    _exit(read(held[0], &byte, 1) == 0 ? 0 : 1);
  }
  CHECK(child > 0);
  worker_kill(&w);
  const int64_t end_ns = gpufi_clock_ns() + WAIT_NS;
  while (importer_count > 0 && gpufi_clock_ns() < end_ns) {
    CHECK_OK(gpuf_share_importer_count(&s.handle, &importer_count, &err));
  }
  CHECK(importer_count == 0);
  worker next = worker_start();
  WORKER_OK(&next, "attach %s", s.text);
  check_hash(&next, 0, &s.tensor);
  worker_stop(&next);
  close(held[0]);
  close(held[1]);
  CHECK(TEMP_FAILURE_RETRY(waitpid((pid_t)child, NULL, 0)) == child);
  end_share(&s);
}

static void a_live_exporter_is_not_gone_because_of_signals(void) {
  attached a = attach_to_worker();
  const int64_t end_ns = gpufi_clock_ns() + 300000000;
  while (gpufi_clock_ns() < end_ns) {
    CHECK_OK(gpuf_attachment_check(a.attachment, &err));
  }
  CHECK_OK(gpuf_detach(a.attachment, &err));
  worker_stop(&a.w);
}

static void a_stopped_exporter_is_a_timeout_and_may_come_back(void) {
  attached a = attach_to_worker();
  gpuf_attachment *second;
  kill(a.w.pid, SIGSTOP);
  TEMP_FAILURE_RETRY(waitpid(a.w.pid, NULL, WUNTRACED)); /* until it has stopped */
  const int64_t begin_ns = gpufi_clock_ns();
  CHECK_FAILS(gpuf_attach(&a.handle, &second, &a.tensor, &err), GPUF_ERR_TIMEOUT, "did not answer");
  CHECK(gpufi_clock_ns() - begin_ns < 20 * GPUFI_NS_PER_S);
  kill(a.w.pid, SIGCONT);
  CHECK_OK(gpuf_attach(&a.handle, &second, &a.tensor, &err));
  CHECK_OK(gpuf_detach(second, &err));
  CHECK_OK(gpuf_detach(a.attachment, &err));
  worker_stop(&a.w);
}

/* --- Beside work that waits (host backend) ------------------------------------------ */

static sem_t gate;

static void gated_kernel(const void *args) {
  (void)args;
  sem_wait(&gate);
}

static gpuf_stream hold_device(void) {
  gpuf_stream stream;
  CHECK(sem_init(&gate, 0, 0) == 0);
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  CHECK_OK(gpuf_host_launch(host_device, stream, gated_kernel, NULL, 0, &err));
  return stream;
}

static void let_device_go(gpuf_stream stream) {
  sem_post(&gate);
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
}

static void *detach(void *attachment) {
  return gpuf_detach(attachment, NULL) == GPUF_OK ? NULL : attachment;
}

/* A detach waits for the device; other devices' memory, and other shares, do not wait for it. */
static void a_detach_that_waits_holds_up_nobody(void) {
  const gpuf_device other = {GPUF_DEVICE_HOST, 1};
  attached a = attach_to_worker();
  shared own = share_some();
  pthread_t detaching;
  void *d_ptr, *failed;
  CHECK_OK(gpuf_unshare(&own.handle, 0, NULL, &err));
  CHECK_OK(gpuf_alloc(other, 4096, &d_ptr, &err));
  const gpuf_stream stream = hold_device();
  CHECK(pthread_create(&detaching, NULL, detach, a.attachment) == 0);
  usleep(50000);
  alarm(60);
  CHECK_OK(gpuf_free(other, d_ptr, &err));
  share_tensor(&own, NULL);
  CHECK_OK(gpuf_unshare(&own.handle, 0, NULL, &err));
  alarm(0);
  let_device_go(stream);
  CHECK(pthread_join(detaching, &failed) == 0 && !failed);
  CHECK_OK(gpuf_free(test_device, own.d_ptr, &err));
  worker_stop(&a.w);
}

/* Nobody reads the copy any more. */
static void a_copy_that_is_withdrawn_does_not_wait_for_the_device(void) {
  const gpuf_share_options options = {.struct_nbytes = sizeof(options), .copy = true};
  shared s = share_some();
  CHECK_OK(gpuf_unshare(&s.handle, 0, NULL, &err));
  share_tensor(&s, &options);
  const gpuf_stream stream = hold_device();
  alarm(60);
  CHECK_OK(gpuf_unshare(&s.handle, 0, NULL, &err));
  alarm(0);
  let_device_go(stream);
  CHECK_OK(gpuf_free(test_device, s.d_ptr, &err));
}

typedef struct detach_attempt {
  gpuf_attachment *attachment;
  gpuf_status status;
} detach_attempt;

static void detaching_kernel(const void *args) {
  detach_attempt *const tried = *(detach_attempt *const *)args;
  tried->status = gpuf_detach(tried->attachment, NULL);
}

static void a_kernel_detaches_nothing(void) {
  attached a = attach_to_worker();
  detach_attempt tried = {a.attachment, GPUF_OK}, *const arg = &tried;
  gpuf_stream stream;
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  CHECK_OK(gpuf_host_launch(host_device, stream, detaching_kernel, &arg, sizeof(arg), &err));
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
  CHECK(tried.status == GPUF_ERR_STATE);
  CHECK_OK(gpuf_detach(a.attachment, &err));
  worker_stop(&a.w);
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--worker") == 0) {
    return worker_main();
  }
  if (argc == 2 && strcmp(argv[1], "stopped") == 0) { /* it waits for ten seconds */
    test_device = host_device;
    TEST(a_stopped_exporter_is_a_timeout_and_may_come_back);
    return test_finish();
  }
  TEST_ON_DEVICES(another_process_sees_and_writes_the_same_elements);
  TEST_ON_DEVICES(a_view_of_a_suballocation_arrives_as_that_view);
  TEST_ON_DEVICES(small_allocations_are_not_mistaken_for_each_other);
  TEST_ON_DEVICES(two_shares_of_one_allocation_are_open_at_once);
  TEST_ON_DEVICES(a_tensor_without_elements_can_be_shared);
  TEST_ON_DEVICES(the_exporter_itself_gets_the_original);
  TEST_ON_DEVICES(two_importers_are_counted);
  TEST_ON_DEVICES(memory_is_released_once_and_after_the_last_importer);
  TEST_ON_DEVICES(a_copy_is_shared_without_the_original);
  TEST_ON_DEVICES(cycles_leave_no_descriptor_and_no_thread);
  TEST_ON_DEVICES(threads_share_and_attach_at_once);
  TEST_ON_DEVICES(a_killed_importer_gives_its_references_back);
  TEST_ON_DEVICES(an_exporter_killed_before_attach_is_gone);
  TEST_ON_DEVICES(an_exporter_that_was_killed_and_not_reaped_is_gone);
  TEST_ON_DEVICES(an_exporter_killed_while_attached_is_reported);
  TEST_ON_DEVICES(a_forked_child_does_not_keep_a_dead_exporter_alive);
  TEST_ON_DEVICES(a_forked_child_does_not_keep_a_dead_importers_references);
  TEST_ON_DEVICES(an_importer_ends_while_a_child_of_the_exporter_holds_its_connection);
  test_device = host_device;
  TEST(a_live_exporter_is_not_gone_because_of_signals);
  TEST(a_detach_that_waits_holds_up_nobody);
  TEST(a_copy_that_is_withdrawn_does_not_wait_for_the_device);
  TEST(a_kernel_detaches_nothing);
  return test_finish();
}
