/* Sharing between processes: who and what must be refused. */
#include <pthread.h>

#include "share_fixture.h"

#include "config.h"
#if GPUFI_WITH_CUDA
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif

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
  share_tensor(&s, NULL); /* the same address, in a later generation */
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

/* Every byte of the handle is altered in turn, and the checksum made right again. */
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
    requests[i] = (gpufi_share_request){
        GPUFI_SHARE_WIRE_MAGIC, GPUFI_SHARE_WIRE_VERSION, GPUFI_SHARE_ATTACH, 1, {0}};
  }
  requests[0].magic++;
  requests[1].kind = 77;
  requests[4].version++;
  for (int i = 0; i < 5; i++) {
    const int fd = raw_connect(&s.handle);
    CHECK(fd >= 0 && send(fd, &requests[i], sizes[i], MSG_NOSIGNAL) == (ssize_t)sizes[i]);
    const ssize_t nbytes = TEMP_FAILURE_RETRY(recv(fd, reply, sizeof(reply), 0));
    CHECK(i < 3 ? nbytes == 0 : nbytes == (ssize_t)sizeof(gpufi_share_reply));
    CHECK(i < 3 || ((gpufi_share_reply *)reply)->answer ==
                       (i == 3 ? GPUFI_SHARE_FORGED : GPUFI_SHARE_OTHER_VERSION));
    close(fd);
  }
  const int fd = raw_connect(&s.handle);
  memset(reply, 0, sizeof(reply));
  memcpy(reply, &requests[2], header);
  CHECK(send(fd, reply, sizeof(reply), MSG_NOSIGNAL) == (ssize_t)sizeof(reply));
  CHECK(TEMP_FAILURE_RETRY(recv(fd, reply, sizeof(reply), 0)) == 0);
  close(fd);
  WORKER_OK(&w, "attach %s", s.text);
  worker_stop(&w);
  end_share(&s);
}

/* --- What a false exporter sends ---------------------------------------------------- */

/* A process that has taken the address of a service. Its handle is as good as a true one. */
typedef struct false_exporter {
  gpuf_share_handle handle;
  int listen_fd;
  int descriptor_count; /* that come with its reply */
} false_exporter;

static false_exporter false_exporter_of(const shared *s) {
  false_exporter f = {0};
  gpufi_share_fields fields;
  struct sockaddr_un address;
  CHECK_OK(gpufi_share_decode(&s->handle, &fields, &err));
  const pid_t own = getpid(); /* this test may run beside itself */
  memset(fields.service, 0xa5, sizeof(fields.service));
  memcpy(fields.service, &own, sizeof(own));
  gpufi_share_encode(&fields, &f.handle);
  const socklen_t nbytes = gpufi_share_address(fields.service, &address);
  f.listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  CHECK(bind(f.listen_fd, (struct sockaddr *)&address, nbytes) == 0 && listen(f.listen_fd, 1) == 0);
  return f;
}

static void *answer_falsely(void *arg) {
  const false_exporter *f = arg;
  gpufi_share_request request;
  const int fd = TEMP_FAILURE_RETRY(accept(f->listen_fd, NULL, NULL));
  if (TEMP_FAILURE_RETRY(recv(fd, &request, sizeof(request), 0)) > 0) {
    union {
      struct cmsghdr header;
      char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control = {0};
    const size_t nbytes = CMSG_LEN((size_t)f->descriptor_count * sizeof(int));
    gpufi_share_reply reply = {GPUFI_SHARE_WIRE_MAGIC, GPUFI_SHARE_WIRE_VERSION,
                               GPUFI_SHARE_GRANTED, request.reference};
    struct iovec content = {&reply, sizeof(reply)};
    const struct msghdr message = {
        .msg_iov = &content, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = nbytes};
    control.header =
        (struct cmsghdr){.cmsg_len = nbytes, .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    for (int i = 0; i < f->descriptor_count; i++) {
      memcpy(CMSG_DATA(&control.header) + (size_t)i * sizeof(int), &f->listen_fd, sizeof(int));
    }
    sendmsg(fd, &message, 0);
    TEMP_FAILURE_RETRY(recv(fd, &request, sizeof(request), 0)); /* until the importer closes */
  }
  close(fd);
  return NULL;
}

static void descriptors_that_nobody_asked_for_are_closed(void) {
  shared s = share_some();
  false_exporter f = false_exporter_of(&s);
  gpuf_attachment *attachment;
  gpuf_tensor tensor;
  const int before = count_entries("/proc/self/fd");
  for (f.descriptor_count = 1; f.descriptor_count <= 4; f.descriptor_count++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, answer_falsely, &f) == 0);
    const gpuf_status status = gpuf_attach(&f.handle, &attachment, &tensor, &err);
    pthread_join(thread, NULL);
    CHECK(status == GPUF_ERR_CORRUPT);
    CHECK(
        strstr(err.message, f.descriptor_count > 1 ? "does not answer as" : "passed on no memory"));
    CHECK(count_entries("/proc/self/fd") == before);
  }
  close(f.listen_fd);
  end_share(&s);
}

/* --- Which memory must be refused --------------------------------------------------- */

static void attached_memory_is_neither_freed_nor_shared_again(void) {
  attached a = attach_to_worker();
  gpuf_share_handle own;
  CHECK_FAILS(gpuf_unshare(&a.handle, 0, NULL, &err), GPUF_ERR_INVALID, "only that process");
  CHECK_FAILS(gpuf_share(&a.tensor, NULL, &own, &err), GPUF_ERR_UNSUPPORTED, "another process");
  CHECK_FAILS(gpuf_free(test_device, a.tensor.data, &err), GPUF_ERR_INVALID, "gpuf_detach");
  CHECK_OK(gpuf_detach(a.attachment, &err));
  worker_stop(&a.w);
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
  CHECK(strstr(err.message, "copy=True"));
  const gpuf_share_options options = {.struct_nbytes = sizeof(options), .copy = true};
  CHECK_OK(gpuf_share(&tensor, &options, &handle, &err));
  CHECK_OK(gpuf_unshare(&handle, 0, NULL, &err));
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
      (CUresult (*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))(
          uintptr_t)driver_call("cuMemAddressReserve");
  CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                     unsigned long long) =
      (CUresult (*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                    unsigned long long))(uintptr_t)driver_call("cuMemCreate");
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) =
      (CUresult (*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))(
          uintptr_t)driver_call("cuMemMap");
  CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) =
      (CUresult (*)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))(uintptr_t)driver_call(
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
  TEST_ON_DEVICES(a_stale_handle_is_refused);
  TEST_ON_DEVICES(a_forged_handle_is_refused);
  TEST_ON_DEVICES(another_users_process_is_refused_on_both_sides);
  TEST_ON_DEVICES(a_client_outside_the_protocol_is_dropped);
  test_device = host_device;
  TEST(descriptors_that_nobody_asked_for_are_closed);
  TEST_ON_DEVICES(attached_memory_is_neither_freed_nor_shared_again);
  TEST_ON_DEVICES(memory_that_is_no_allocation_is_refused);
#if GPUFI_WITH_CUDA
  TEST_ON_GPU(managed_memory_is_refused_with_the_remedy);
  TEST_ON_GPU(memory_of_a_cuda_pool_is_refused_with_the_remedy);
  TEST_ON_GPU(memory_of_the_virtual_memory_api_is_refused_with_the_remedy);
#endif
  return test_finish();
}
