/* Memory of another process that is attached here. */
#include "attachment.h"

#include "errors.h"

static const char attachment_name[] = "gpufetch.attachment";

/* A failure is ignored: after fork, or when the device is lost, the memory is gone already. */
static void destroy(PyObject *capsule) {
  gpuf_attachment *attachment = PyCapsule_GetPointer(capsule, attachment_name);
  Py_BEGIN_ALLOW_THREADS
    gpuf_detach(attachment, NULL);
  Py_END_ALLOW_THREADS
}

PyObject *gpufi_py_attachment_create(gpuf_attachment *attachment) {
  PyObject *capsule = PyCapsule_New(attachment, attachment_name, destroy);
  if (!capsule) {
    gpuf_detach(attachment, NULL);
  }
  return capsule;
}

gpuf_attachment *gpufi_py_attachment_of(PyObject *keepalive) {
  return keepalive && PyCapsule_IsValid(keepalive, attachment_name)
             ? PyCapsule_GetPointer(keepalive, attachment_name)
             : NULL;
}

int gpufi_py_attachment_check(const gpufi_py_state *state, PyObject *keepalive) {
  gpuf_attachment *const attachment = gpufi_py_attachment_of(keepalive);
  gpuf_error err;
  if (!attachment || gpuf_attachment_check(attachment, &err) == GPUF_OK) {
    return 0;
  }
  gpufi_py_raise(state, &err);
  return -1;
}
