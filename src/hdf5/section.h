/* When threads are in HDF5. A fork waits until none is, so that its child finds neither HDF5's own
 * lock taken nor its data in the middle of a change. Thread-safety: any thread. */
#ifndef GPUFI_HDF5_SECTION_H
#define GPUFI_HDF5_SECTION_H

#include <gpufetch/gpufetch.h>

/* GPUF_ERR_STATE in a child that was forked while another thread was in HDF5 nevertheless: that
 * thread stayed there for too long, maybe since it waited for the one that forked. */
gpuf_status gpufi_h5_sections_check(gpuf_error *err);

/* From here on the thread may call HDF5. False while the process forks: then the thread gives back
 * the locks that it holds, and waits until that is over. */
bool gpufi_h5_section_begin(void);
void gpufi_h5_sections_wait(void);
void gpufi_h5_section_end(void);

#endif
