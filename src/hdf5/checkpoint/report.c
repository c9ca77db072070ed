#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/struct.h"
#include "hdf5/checkpoint/state.h"

/* Less memory was reserved than a snapshot that does not wait takes. */
static void note_small_reserve(const gpuf_checkpoint *c, size_t here_nbytes,
                               gpuf_checkpoint_report *report) {
  if (c->options.state_nbytes > 0 && here_nbytes > c->options.state_nbytes) {
    snprintf(report->message, sizeof(report->message),
             "the tensors on the device take %zu bytes, and options.state_nbytes says %zu: less "
             "memory was reserved than the commit needs to be quick",
             here_nbytes, c->options.state_nbytes);
  }
}

void gpufi_checkpoint_report_begin(gpuf_checkpoint *c) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  const gpufi_checkpoint_path path = gpufi_checkpoint_path_of(&c->folder, c->contents.step);
  report.step = c->contents.step;
  report.status = GPUF_ERR_TIMEOUT;
  memcpy(report.path, path.text, sizeof(report.path));
  size_t here_nbytes = 0;
  for (size_t i = 0; i < c->contents.tensor_count; i++) {
    const gpuf_tensor *const tensor = &c->contents.tensors[i].tensor;
    report.raw_nbytes += gpuf_tensor_nbytes(tensor);
    here_nbytes += tensor->device.kind == GPUF_DEVICE_CPU ? 0 : gpuf_tensor_nbytes(tensor);
  }
  report.stall_ns = c->stall_ns;
  note_small_reserve(c, here_nbytes, &report);
  c->report = report;
  gpufi_checkpoint_report_memory(c);
}

void gpufi_checkpoint_report_end(gpuf_checkpoint *c, gpuf_status status, const gpuf_error *error,
                                 const gpufi_checkpoint_file_sizes *sizes) {
  gpuf_checkpoint_report *const report = &c->report;
  report->status = status;
  report->write_ns = gpufi_clock_ns() - c->committed_ns;
  if (status == GPUF_OK) {
    report->file_nbytes = sizes->file_nbytes;
    report->recycled_nbytes = sizes->recycled_nbytes;
    report->ratio =
        sizes->file_nbytes ? (double)report->raw_nbytes / (double)sizes->file_nbytes : 0;
  }
  if (error->status == GPUF_ERR_IO || error->status == GPUF_ERR_HDF5) {
    report->system_error = error->native_code;
  }
  if (*error->message) {
    memcpy(report->message, error->message, sizeof(report->message));
  }
}

void gpufi_checkpoint_report_memory(gpuf_checkpoint *c) {
  c->report.mode = c->snapshot.mode;
  c->report.device_nbytes = c->snapshot.device_nbytes;
  c->report.host_nbytes = gpufi_checkpoint_snapshot_host_nbytes(&c->snapshot);
}

gpuf_status gpufi_checkpoint_check_report(const gpuf_checkpoint_report *report, gpuf_error *err) {
  return report ? gpufi_struct_check(report, sizeof(*report), "GPUF_CHECKPOINT_REPORT_INIT", err)
                : GPUF_OK;
}

void gpufi_checkpoint_report_write(const gpuf_checkpoint *c, gpuf_checkpoint_report *given) {
  if (given && gpufi_checkpoint_check_report(given, NULL) == GPUF_OK) {
    gpufi_struct_write(given, &c->report, sizeof(c->report));
  }
}

gpuf_status gpufi_checkpoint_outcome(const gpuf_checkpoint *c, gpuf_error *err) {
  return c->report.status == GPUF_OK
             ? GPUF_OK
             : gpufi_fail(err, c->report.status, c->report.system_error, "%s", c->report.message);
}
