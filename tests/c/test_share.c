#include "share_worker.h"

#include "config.h"
#if GPUFI_WITH_CUDA
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif

static gpuf_error err;

/* A view into random bytes in device memory, and what sharing it needs. */
typedef struct shared {
  void *d_ptr;
  gpuf_tensor tensor;
  gpuf_share_handle handle;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES];
} shared;

static void *device_bytes(size_t nbytes, uint64_t seed) {
  const int64_t count = (int64_t)nbytes;
  gpuf_tensor tensor, source;
  void *d_ptr, *bytes = malloc(nbytes);
  fill_random(bytes, nbytes, seed);
  CHECK_OK(gpuf_alloc(test_device, nbytes, &d_ptr, &err));
  CHECK_OK(gpuf_tensor_init(&tensor, d_ptr, test_device, GPUF_DTYPE_UINT8, 1, &count, &err));
  CHECK_OK(gpuf_tensor_init(&source, bytes, cpu_device, GPUF_DTYPE_UINT8, 1, &count, &err));
  CHECK_OK(gpuf_copy(&tensor, &source, NULL, &err));
  free(bytes);
  return d_ptr;
}

static void share_tensor(shared *s) {
  CHECK_OK(gpuf_share(&s->tensor, NULL, &s->handle, &err));
  CHECK_OK(gpuf_share_to_text(&s->handle, s->text, &err));
}

/* `offset_nbytes` into a block of 300,000 bytes. */
static shared share_floats(int32_t ndim, const int64_t *shape, size_t offset_nbytes) {
  shared s;
  s.d_ptr = device_bytes(300000, 7 + offset_nbytes);
  CHECK_OK(gpuf_tensor_init(&s.tensor, (char *)s.d_ptr + offset_nbytes, test_device,
                            GPUF_DTYPE_FLOAT32, ndim, shape, &err));
  share_tensor(&s);
  return s;
}

static shared share_some(void) {
  const int64_t shape[2] = {30, 100};
  return share_floats(2, shape, 0);
}

#define WAIT_NS INT64_C(20000000000) /* longer than any wait that ends well */

static void end_share(shared *s) {
  CHECK_OK(gpuf_unshare(&s->handle, WAIT_NS, NULL, &err));
  CHECK_OK(gpuf_free(test_device, s->d_ptr, &err));
}

static void check_hash(worker *w, int slot, const gpuf_tensor *tensor) {
  uint64_t hash;
  char text[32];
  CHECK_OK(tensor_hash(tensor, &hash, &err));
  snprintf(text, sizeof(text), "%llx", (unsigned long long)hash);
  WORKER_OK(w, "hash %d", slot);
  CHECK(strcmp(w->answer, text) == 0);
}

static int32_t importers(const shared *s) {
  int32_t count = -1;
  CHECK_OK(gpuf_share_importer_count(&s->handle, &count, &err));
  return count;
}

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
  share_tensor(&s);
  worker w = worker_start();
  WORKER_OK(&w, "attach %s", s.text);
  check_hash(&w, 0, &s.tensor);
  worker_stop(&w);
  end_share(&s);
}

/* Small cudaMallocs lie in one block of the driver; ours have a page each. */
static void small_allocations_are_not_mistaken_for_each_other(void) {
  const int64_t shape[1] = {100};
  shared s[3];
  worker w = worker_start();
  for (int i = 0; i < 3; i++) {
    s[i].d_ptr = device_bytes(400, 11 + (uint64_t)i);
    CHECK_OK(gpuf_tensor_init(&s[i].tensor, s[i].d_ptr, test_device, GPUF_DTYPE_INT32, 1, shape,
                              &err));
    share_tensor(&s[i]);
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

static void two_shares_of_one_block_are_open_at_once(void) {
  const int64_t shape[1] = {1000};
  shared first = share_floats(1, shape, 0), second = first;
  second.tensor.data = (char *)first.tensor.data + 100000;
  share_tensor(&second);
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
  share_tensor(&s);
  worker w = worker_start();
  WORKER_OK(&w, "attach %s", s.text);
  check_hash(&w, 0, &s.tensor);
  worker_stop(&w);
  end_share(&s);
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
static void count_release(void *arg) { __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST); }

static void memory_is_released_once_and_after_the_last_importer(void) {
  shared s = share_some();
  const gpuf_share_options options = {.release = count_release, .release_arg = &release_count};
  worker w = worker_start();
  CHECK_OK(gpuf_unshare(&s.handle, 0, NULL, &err));
  CHECK_OK(gpuf_share(&s.tensor, &options, &s.handle, &err));
  CHECK_OK(gpuf_share_to_text(&s.handle, s.text, &err));
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

static void cycles_leave_no_descriptor_and_no_thread(void) {
  shared s = share_some();
  worker w = worker_start();
  char before[64];
  WORKER_OK(&w, "cycle %s 3", s.text);
  WORKER_OK(&w, "resources");
  strcpy(before, w.answer);
  const int descriptors = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
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
  gpuf_share_handle handle;
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  WORKER_OK(&w, "share %d 5000 3", test_device.kind);
  CHECK_OK(gpuf_share_from_text(w.answer, &handle, &err));
  worker_kill(&w);
  CHECK_FAILS(gpuf_attach(&handle, &attachment, &tensor, &err), GPUF_ERR_STATE, "is gone");
}

static void an_exporter_killed_while_attached_is_reported(void) {
  worker w = worker_start();
  gpuf_share_handle handle;
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  WORKER_OK(&w, "share %d 5000 3", test_device.kind);
  CHECK_OK(gpuf_share_from_text(w.answer, &handle, &err));
  CHECK_OK(gpuf_attach(&handle, &attachment, &tensor, &err));
  CHECK_OK(gpuf_attachment_check(attachment, &err));
  worker_kill(&w);
  CHECK_FAILS(gpuf_attachment_check(attachment, &err), GPUF_ERR_STATE, "is gone");
  gpuf_attachment *second;
  CHECK_FAILS(gpuf_attach(&handle, &second, &tensor, &err), GPUF_ERR_STATE, "is gone");
  CHECK_OK(gpuf_detach(attachment, &err));
}

/* The child has the sockets' descriptors when it is forked; it must not keep them. */
static void a_forked_child_does_not_keep_a_dead_exporter_alive(void) {
  worker w = worker_start();
  gpuf_share_handle handle;
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  WORKER_OK(&w, "share %d 5000 3", test_device.kind);
  CHECK_OK(gpuf_share_from_text(w.answer, &handle, &err));
  CHECK_OK(gpuf_attach(&handle, &attachment, &tensor, &err));
  WORKER_OK(&w, "fork");
  const pid_t child = atoi(w.answer);
  CHECK(child > 0);
  worker_kill(&w);
  const gpuf_status status = gpuf_attachment_check(attachment, &err);
  kill(child, SIGKILL);
  CHECK(status == GPUF_ERR_STATE);
  CHECK_OK(gpuf_detach(attachment, &err));
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

static void a_stopped_exporter_is_a_timeout_and_may_come_back(void) {
  worker w = worker_start();
  gpuf_share_handle handle;
  gpuf_attachment *attachment, *second;
  gpuf_tensor tensor;
  WORKER_OK(&w, "share %d 5000 3", test_device.kind);
  CHECK_OK(gpuf_share_from_text(w.answer, &handle, &err));
  CHECK_OK(gpuf_attach(&handle, &attachment, &tensor, &err));
  kill(w.pid, SIGSTOP);
  waitpid(w.pid, NULL, WUNTRACED); /* until it has stopped */
  CHECK_FAILS(gpuf_attach(&handle, &second, &tensor, &err), GPUF_ERR_TIMEOUT, "did not answer");
  kill(w.pid, SIGCONT);
  CHECK_OK(gpuf_attach(&handle, &second, &tensor, &err));
  CHECK_OK(gpuf_detach(second, &err));
  CHECK_OK(gpuf_detach(attachment, &err));
  worker_stop(&w);
}

/* --- Who must be refused ----------------------------------------------------------- */

static void a_stale_handle_is_refused(void) {
  shared s = share_some();
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  worker w = worker_start();
  char old[GPUF_SHARE_TEXT_MAX_NBYTES];
  const gpuf_share_handle old_handle = s.handle;
  strcpy(old, s.text);
  WORKER_OK(&w, "attach %s", old);
  CHECK_FAILS(gpuf_unshare(&s.handle, 0, NULL, &err), GPUF_ERR_TIMEOUT, "1 attachments");
  share_tensor(&s); /* the same address, in a later generation */
  WORKER_FAILS(&w, "GPUF_ERR_STATE", "stale", "attach %s", old);
  CHECK_FAILS(gpuf_attach(&old_handle, &attachment, &tensor, &err), GPUF_ERR_STATE, "stale");
  WORKER_OK(&w, "detach 0");
  CHECK_OK(gpuf_unshare(&old_handle, WAIT_NS, NULL, &err));
  CHECK_OK(gpuf_unshare(&old_handle, 0, NULL, &err));
  WORKER_FAILS(&w, "GPUF_ERR_STATE", "stale", "attach %s", old);
  WORKER_OK(&w, "attach %s", s.text);
  check_hash(&w, 1, &s.tensor);
  worker_stop(&w);
  end_share(&s);
}

/* Every byte of the handle, with the checksum made right again. */
static void a_forged_handle_is_refused(void) {
  shared s = share_some();
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  worker w = worker_start();
  for (uint32_t i = 0; i < s.handle.nbytes; i++) {
    char text[GPUF_SHARE_TEXT_MAX_NBYTES];
    gpuf_share_handle forged = s.handle;
    forged.bytes[i] ^= (uint8_t)(1u << i % 8);
    gpufi_share_seal(&forged);
    if (memcmp(&forged, &s.handle, sizeof(forged)) == 0) {
      continue; /* a byte of the checksum itself */
    }
    CHECK(gpuf_attach(&forged, &attachment, &tensor, &err) != GPUF_OK);
    if (gpuf_share_to_text(&forged, text, &err) == GPUF_OK) {
      CHECK(!worker_says_ok(&w, strcat(strcpy((char[LINE_NBYTES]){0}, "attach "), text)));
    }
  }
  gpuf_share_handle forged = s.handle;
  forged.bytes[70] ^= 1; /* in the token */
  gpufi_share_seal(&forged);
  CHECK_FAILS(gpuf_attach(&forged, &attachment, &tensor, &err), GPUF_ERR_CORRUPT, "never gave");
  CHECK_OK(gpuf_share_to_text(&forged, s.text, &err));
  WORKER_FAILS(&w, "GPUF_ERR_CORRUPT", "never gave", "attach %s", s.text);
  CHECK(importers(&s) == 0);
  worker_stop(&w);
  end_share(&s);
}

static void another_users_process_is_refused_on_both_sides(void) {
  if (geteuid() != 0) {
    SKIP("only root can become another user");
  }
  shared s = share_some();
  worker w = worker_start();
  WORKER_OK(&w, "setuid 65534");
  CHECK(strcmp(w.answer, "0") == 0);
  WORKER_FAILS(&w, "GPUF_ERR_UNSUPPORTED", "runs as user 0", "attach %s", s.text);
  WORKER_OK(&w, "ask %s", s.text);
  CHECK(atoi(w.answer) == GPUFI_SHARE_OTHER_USER);
  CHECK(importers(&s) == 0);
  worker_stop(&w);
  end_share(&s);
}

static void a_client_outside_the_protocol_is_dropped(void) {
  shared s = share_some();
  gpufi_share_request requests[5];
  const size_t header = GPUFI_SHARE_REQUEST_HEADER_NBYTES;
  const size_t sizes[5] = {header, header, header - 1, sizeof(requests[0]), header};
  char reply[2 * sizeof(gpufi_share_request)];
  worker w = worker_start();
  for (int i = 0; i < 5; i++) {
    requests[i] = (gpufi_share_request){GPUFI_SHARE_WIRE_MAGIC, GPUFI_SHARE_WIRE_VERSION,
                                        GPUFI_SHARE_ATTACH, 1, {0}};
  }
  requests[0].magic++;
  requests[1].kind = 77;
  requests[4].version++;
  for (int i = 0; i < 5; i++) {
    const int fd = raw_connect(&s.handle);
    CHECK(fd >= 0 && send(fd, &requests[i], sizes[i], MSG_NOSIGNAL) == (ssize_t)sizes[i]);
    const ssize_t nbytes = recv(fd, reply, sizeof(reply), 0);
    CHECK(i < 3 ? nbytes == 0 : nbytes == (ssize_t)sizeof(gpufi_share_reply));
    CHECK(i < 3 || ((gpufi_share_reply *)reply)->answer ==
                       (i == 3 ? GPUFI_SHARE_FORGED : GPUFI_SHARE_OTHER_VERSION));
    close(fd);
  }
  const int fd = raw_connect(&s.handle);
  memset(reply, 0, sizeof(reply));
  memcpy(reply, &requests[2], header);
  CHECK(send(fd, reply, sizeof(reply), MSG_NOSIGNAL) == (ssize_t)sizeof(reply));
  CHECK(recv(fd, reply, sizeof(reply), 0) == 0);
  close(fd);
  WORKER_OK(&w, "attach %s", s.text);
  worker_stop(&w);
  end_share(&s);
}

static void attached_memory_is_neither_freed_nor_shared_again(void) {
  worker w = worker_start();
  gpuf_share_handle handle;
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  WORKER_OK(&w, "share %d 5000 3", test_device.kind);
  CHECK_OK(gpuf_share_from_text(w.answer, &handle, &err));
  CHECK_FAILS(gpuf_unshare(&handle, 0, NULL, &err), GPUF_ERR_INVALID, "only that process");
  CHECK_OK(gpuf_attach(&handle, &attachment, &tensor, &err));
  CHECK_FAILS(gpuf_share(&tensor, NULL, &handle, &err), GPUF_ERR_UNSUPPORTED, "another process");
  CHECK_FAILS(gpuf_free(test_device, tensor.data, &err), GPUF_ERR_INVALID, "gpuf_detach");
  CHECK_OK(gpuf_detach(attachment, &err));
  worker_stop(&w);
}

static void memory_that_is_no_allocation_is_refused(void) {
  const int64_t shape[1] = {10};
  char bytes[40];
  gpuf_share_handle handle;
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, bytes, test_device, GPUF_DTYPE_INT32, 1, shape, &err));
  CHECK(gpuf_share(&tensor, NULL, &handle, &err) == GPUF_ERR_INVALID);
  tensor.device = cpu_device;
  CHECK_FAILS(gpuf_share(&tensor, NULL, &handle, &err), GPUF_ERR_UNSUPPORTED, "CPU");
  shared s = share_some();
  s.tensor.shape[0] = 100000;
  CHECK_FAILS(gpuf_share(&s.tensor, NULL, &handle, &err), GPUF_ERR_INVALID, "outside");
  end_share(&s);
}

/* --- Memory that CUDA cannot pass on -------------------------------------------------- */

#if GPUFI_WITH_CUDA
static void check_unsupported(void *d_ptr, const char *text) {
  const int64_t shape[1] = {1024};
  const gpuf_device device = {GPUF_DEVICE_CUDA, 0};
  gpuf_share_handle handle;
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, d_ptr, device, GPUF_DTYPE_INT32, 1, shape, &err));
  CHECK_FAILS(gpuf_share(&tensor, NULL, &handle, &err), GPUF_ERR_UNSUPPORTED, text);
  CHECK(strstr(err.message, "copy it into gpuf_alloc"));
}

static void managed_memory_is_refused_with_the_remedy(void) {
  void *d_ptr;
  CHECK(cudaMallocManaged(&d_ptr, 4096, cudaMemAttachGlobal) == cudaSuccess);
  check_unsupported(d_ptr, "managed");
  CHECK(cudaFree(d_ptr) == cudaSuccess);
}

static void memory_of_a_cuda_pool_is_refused_with_the_remedy(void) {
  void *d_ptr;
  CHECK(cudaMallocAsync(&d_ptr, 4096, cudaStreamPerThread) == cudaSuccess);
  check_unsupported(d_ptr, "memory pool");
  CHECK(cudaFreeAsync(d_ptr, cudaStreamPerThread) == cudaSuccess);
}

static void *driver_call(const char *name) {
  void *call = NULL;
  enum cudaDriverEntryPointQueryResult result;
  CHECK(cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &result) ==
        cudaSuccess);
  return call;
}

static void memory_of_the_virtual_memory_api_is_refused_with_the_remedy(void) {
  const size_t nbytes = 2 << 20; /* the granularity on every device so far */
  CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle memory;
  CUdeviceptr address;
  CHECK(cudaFree(NULL) == cudaSuccess); /* makes the context */
  CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) =
      (CUresult(*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))(uintptr_t)
          driver_call("cuMemAddressReserve");
  CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                     unsigned long long) =
      (CUresult(*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                   unsigned long long))(uintptr_t)driver_call("cuMemCreate");
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) =
      (CUresult(*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                   unsigned long long))(uintptr_t)driver_call("cuMemMap");
  CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) =
      (CUresult(*)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))(uintptr_t)driver_call(
          "cuMemSetAccess");
  CHECK(reserve(&address, nbytes, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(create(&memory, nbytes, &properties, 0) == CUDA_SUCCESS);
  CHECK(map(address, nbytes, 0, memory, 0) == CUDA_SUCCESS);
  CHECK(set_access(address, nbytes, &access, 1) == CUDA_SUCCESS);
  check_unsupported((void *)(uintptr_t)address, "virtual memory");
}

#define TEST_ON_GPU(function) test_run(#function, gpu_is_there() ? function : skip_for_no_gpu)
#endif

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--worker") == 0) {
    return worker_main();
  }
  TEST_ON_DEVICES(another_process_sees_and_writes_the_same_elements);
  TEST_ON_DEVICES(a_view_of_a_suballocation_arrives_as_that_view);
  TEST_ON_DEVICES(small_allocations_are_not_mistaken_for_each_other);
  TEST_ON_DEVICES(two_shares_of_one_block_are_open_at_once);
  TEST_ON_DEVICES(a_tensor_without_elements_can_be_shared);
  TEST_ON_DEVICES(the_exporter_itself_gets_the_original);
  TEST_ON_DEVICES(two_importers_are_counted);
  TEST_ON_DEVICES(memory_is_released_once_and_after_the_last_importer);
  TEST_ON_DEVICES(cycles_leave_no_descriptor_and_no_thread);
  TEST_ON_DEVICES(a_killed_importer_gives_its_references_back);
  TEST_ON_DEVICES(an_exporter_killed_before_attach_is_gone);
  TEST_ON_DEVICES(an_exporter_killed_while_attached_is_reported);
  TEST_ON_DEVICES(a_forked_child_does_not_keep_a_dead_exporter_alive);
  TEST_ON_DEVICES(a_forked_child_does_not_keep_a_dead_importers_references);
  test_device = host_device;
  TEST(a_stopped_exporter_is_a_timeout_and_may_come_back);
  TEST_ON_DEVICES(a_stale_handle_is_refused);
  TEST_ON_DEVICES(a_forged_handle_is_refused);
  TEST_ON_DEVICES(another_users_process_is_refused_on_both_sides);
  TEST_ON_DEVICES(a_client_outside_the_protocol_is_dropped);
  TEST_ON_DEVICES(attached_memory_is_neither_freed_nor_shared_again);
  TEST_ON_DEVICES(memory_that_is_no_allocation_is_refused);
#if GPUFI_WITH_CUDA
  TEST_ON_GPU(managed_memory_is_refused_with_the_remedy);
  TEST_ON_GPU(memory_of_a_cuda_pool_is_refused_with_the_remedy);
  TEST_ON_GPU(memory_of_the_virtual_memory_api_is_refused_with_the_remedy);
#endif
  return test_finish();
}
