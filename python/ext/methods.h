/* The tables of functions that the module consists of. Each ends with an empty entry. */
#ifndef GPUFI_PY_METHODS_H
#define GPUFI_PY_METHODS_H

#include "api.h"

extern PyMethodDef gpufi_py_checkpoint_methods[]; /* checkpoint_create, _save and their kin */
extern PyMethodDef gpufi_py_chunk_methods[];      /* chunk_encode, chunk_decode */
extern PyMethodDef gpufi_py_device_methods[];     /* to_device, asdevice, _restride */
extern PyMethodDef gpufi_py_dispatcher_methods[]; /* dispatcher_create, client_open and their kin */
extern PyMethodDef gpufi_py_fetch_methods[];      /* fetch, fetch_async */
extern PyMethodDef gpufi_py_h5_future_methods[];  /* h5_write_async, h5_write_wait and their kin */
extern PyMethodDef gpufi_py_hdf5_methods[];       /* h5_bind, h5_write, h5_read and their kin */
extern PyMethodDef gpufi_py_info_methods[];       /* info, pool_stats and their kin, _host_faults */
extern PyMethodDef gpufi_py_overlap_methods[];    /* find_overlap */
extern PyMethodDef gpufi_py_reduce_methods[];     /* overview, stats, histogram */
extern PyMethodDef gpufi_py_restart_methods[];    /* restart_open, restart_read and their kin */
extern PyMethodDef gpufi_py_serve_methods[];      /* serve_start, serve_publish and their kin */
extern PyMethodDef gpufi_py_share_methods[];      /* share_export, share_attach and their kin */
extern PyMethodDef gpufi_py_thread_methods[];     /* run_and_release, run_insistently, run_locked */

#endif
