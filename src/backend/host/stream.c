#include "backend/host/stream.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/recording.h"
#include "base/error.h"
#include "base/thread.h"

/* Whoever waits for an event, waits for its latest recording at that moment: those on other streams
 * before may end later. */
struct gpufi_event {
  pthread_mutex_t lock;
  gpufi_host_recording *latest; /* guarded by the lock; NULL: none yet */
};

typedef enum item_kind { ITEM_WORK, ITEM_RECORD, ITEM_WAIT, ITEM_STOP } item_kind;

typedef struct item {
  struct item *next;
  item_kind kind;
  gpufi_host_work work;
  gpufi_host_recording *recording;
  bool inherits; /* of ITEM_WAIT: the failure of the work before the recording */
  _Alignas(16) char args[GPUFI_HOST_ARGS_NBYTES];
} item;

typedef struct stream {
  struct stream *next;  /* guarded by streams_lock, as are the members to `device` */
  uint64_t number;      /* in the order of creation, from 1 */
  int32_t waiter_count; /* of gpufi_host_device_synchronize */
  bool is_ending;       /* no handle names it any more; what was on it still runs */
  int32_t device;
  pthread_t thread;
  pthread_mutex_t lock; /* guards all below */
  pthread_cond_t changed;
  item *head;
  item **tail;
  uint64_t pushed_count, ended_count; /* items */
  gpuf_error error; /* first failure since the last synchronize; later work is skipped */
  uint64_t failed;  /* the number of the item that failed, from 1 */
  item stop;        /* ends the thread; is here, so that this takes no memory */
} stream;

/* Guards the list of streams and the default ones. */
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static stream *streams;
static uint64_t created_count;
static pthread_cond_t waiter_left = PTHREAD_COND_INITIALIZER;
static stream *default_streams[GPUFI_HOST_DEVICE_COUNT];
/* GPUF_STREAM_PER_THREAD of the calling thread, of each device; ends with the thread. */
static _Thread_local stream *thread_streams[GPUFI_HOST_DEVICE_COUNT];
static pthread_once_t thread_streams_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_streams_key;
static bool has_thread_streams_key;

/* The latest recording, which is to be released; NULL if there is none. */
static gpufi_host_recording *latest_recording(gpufi_event *event) {
  pthread_mutex_lock(&event->lock);
  gpufi_host_recording *const r = event->latest;
  if (r) {
    gpufi_host_recording_hold(r);
  }
  pthread_mutex_unlock(&event->lock);
  return r;
}

static item *stream_take(stream *s) {
  pthread_mutex_lock(&s->lock);
  while (!s->head) {
    pthread_cond_wait(&s->changed, &s->lock);
  }
  item *it = s->head;
  s->head = it->next;
  if (!s->head) {
    s->tail = &s->head;
  }
  pthread_mutex_unlock(&s->lock);
  return it;
}

static void stream_end_item(stream *s) {
  pthread_mutex_lock(&s->lock);
  s->ended_count++;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

static gpuf_error stream_error(stream *s) {
  pthread_mutex_lock(&s->lock);
  const gpuf_error error = s->error;
  pthread_mutex_unlock(&s->lock);
  return error;
}

/* The first failure is the stream's. */
static void fail_stream(stream *s, const gpuf_error *error) {
  pthread_mutex_lock(&s->lock);
  if (s->error.status == GPUF_OK) {
    s->error = *error;
    s->failed = s->ended_count + 1;
  }
  pthread_mutex_unlock(&s->lock);
}

static void run_work(stream *s, const item *it) {
  gpuf_error error = {0};
  if (stream_error(s).status == GPUF_OK && it->work(it->args, &error) != GPUF_OK) {
    fail_stream(s, &error);
  }
}

static void run_wait(stream *s, const item *it) {
  const gpuf_error error = gpufi_host_recording_await(it->recording);
  if (it->inherits && error.status != GPUF_OK) {
    fail_stream(s, &error);
  }
  gpufi_host_recording_release(it->recording);
}

static void *stream_main(void *arg) {
  stream *s = arg;
  for (;;) {
    item *it = stream_take(s);
    const item_kind kind = it->kind;
    if (kind == ITEM_WORK) {
      run_work(s, it);
    } else if (kind == ITEM_RECORD) {
      const gpuf_error error = stream_error(s);
      gpufi_host_recording_complete(it->recording, &error);
      gpufi_host_recording_release(it->recording);
    } else if (kind == ITEM_WAIT) {
      run_wait(s, it);
    }
    if (kind != ITEM_STOP) {
      free(it); /* the stream's last one is part of it */
    }
    stream_end_item(s);
    if (kind == ITEM_STOP) {
      return NULL;
    }
  }
}

static void stream_push(stream *s, item *it) {
  it->next = NULL;
  pthread_mutex_lock(&s->lock);
  *s->tail = it;
  s->tail = &it->next;
  s->pushed_count++;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

/* Wait for the work that is there now, and take the failure of it, if any. */
static gpuf_error stream_drain(stream *s, bool takes_failure) {
  gpuf_error error = {0};
  pthread_mutex_lock(&s->lock);
  const uint64_t last = s->pushed_count;
  while (s->ended_count < last) {
    pthread_cond_wait(&s->changed, &s->lock);
  }
  if (takes_failure && s->error.status != GPUF_OK && s->failed <= last) {
    error = s->error;
    s->error.status = GPUF_OK;
  }
  pthread_mutex_unlock(&s->lock);
  return error;
}

/* Called with streams_lock held. */
static gpuf_status stream_start(int32_t device, stream **out, gpuf_error *err) {
  stream *s = calloc(1, sizeof(*s));
  if (!s) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a stream");
  }
  s->device = device;
  s->number = ++created_count;
  s->tail = &s->head;
  s->stop.kind = ITEM_STOP;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  const int code = gpufi_thread_start(&s->thread, "gpufetch-stream", 0, stream_main, s);
  if (code != 0) {
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, code, "pthread_create for a stream: %s",
                      strerror(code));
  }
  s->next = streams;
  streams = s;
  *out = s;
  return GPUF_OK;
}

gpuf_status gpufi_host_stream_create(int32_t device, bool is_urgent, gpuf_stream *handle,
                                     gpuf_error *err) {
  stream *s = NULL;
  (void)is_urgent; /* each stream has a thread */
  pthread_mutex_lock(&streams_lock);
  const gpuf_status status = stream_start(device, &s, err);
  pthread_mutex_unlock(&streams_lock);
  if (status == GPUF_OK) {
    *handle = (gpuf_stream)s;
  }
  return status;
}

static void end_thread_streams(void *unused) {
  for (int32_t device = 0; device < GPUFI_HOST_DEVICE_COUNT; device++) {
    if (thread_streams[device]) {
      gpufi_host_stream_destroy(device, GPUF_STREAM_PER_THREAD, NULL);
    }
  }
}

/* The threads behind the streams are not in a forked child. */
static void forget_thread_streams(void) {
  memset(thread_streams, 0, sizeof(thread_streams));
}

static void create_thread_streams_key(void) {
  has_thread_streams_key = pthread_key_create(&thread_streams_key, end_thread_streams) == 0;
  pthread_atfork(NULL, NULL, forget_thread_streams);
}

/* Where the default stream that `handle` names is kept, in *kept; NULL for any other handle. */
static gpuf_status default_stream(int32_t device, gpuf_stream handle, stream ***kept,
                                  gpuf_error *err) {
  *kept = handle == GPUF_STREAM_LEGACY ? &default_streams[device] : NULL;
  if (handle != GPUF_STREAM_PER_THREAD) {
    return GPUF_OK;
  }
  pthread_once(&thread_streams_once, create_thread_streams_key);
  /* The key's destructor sees the end of the thread. */
  if (!has_thread_streams_key || pthread_setspecific(thread_streams_key, thread_streams) != 0) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "the process has no pthread key left, or no memory for its value, by which "
                      "the end of a thread's stream is seen; create a stream instead of "
                      "GPUF_STREAM_PER_THREAD");
  }
  *kept = &thread_streams[device];
  return GPUF_OK;
}

/* The live stream of a handle; default streams are made when they are first used, and *kept is
 * where. Called with streams_lock held. */
static gpuf_status find_locked(int32_t device, gpuf_stream handle, stream ***kept, stream **out,
                               gpuf_error *err) {
  gpuf_status status = default_stream(device, handle, kept, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (*kept) {
    if (!**kept) {
      status = stream_start(device, *kept, err);
    }
    *out = **kept;
    return status;
  }
  assert(handle != GPUF_STREAM_PER_THREAD); /* it has a place, or was refused */
  stream *s = streams;
  while (s && (s->device != device || s->is_ending || (gpuf_stream)s != handle)) {
    s = s->next;
  }
  *out = s;
  return s ? GPUF_OK
           : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "0x%zx is not a live stream of host:%d; pass a handle from "
                        "gpuf_stream_create on that device",
                        (size_t)handle, device);
}

static gpuf_status stream_find(int32_t device, gpuf_stream handle, stream **out, gpuf_error *err) {
  stream **kept;
  pthread_mutex_lock(&streams_lock);
  const gpuf_status status = find_locked(device, handle, &kept, out, err);
  pthread_mutex_unlock(&streams_lock);
  return status;
}

static gpuf_status item_create(item_kind kind, item **out, gpuf_error *err) {
  *out = malloc(sizeof(**out));
  if (!*out) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory to enqueue work");
  }
  (*out)->kind = kind;
  return GPUF_OK;
}

/* It stays in the list to its end: what is on it may use memory that others free meanwhile. */
gpuf_status gpufi_host_stream_destroy(int32_t device, gpuf_stream handle, gpuf_error *err) {
  stream *s;
  stream **kept;
  pthread_mutex_lock(&streams_lock);
  const gpuf_status status = find_locked(device, handle, &kept, &s, err);
  if (status == GPUF_OK) {
    s->is_ending = true;
    if (kept) {
      *kept = NULL;
    }
  }
  pthread_mutex_unlock(&streams_lock);
  if (status != GPUF_OK) {
    return status;
  }
  stream_push(s, &s->stop);
  pthread_join(s->thread, NULL);
  pthread_mutex_lock(&streams_lock);
  while (s->waiter_count > 0) {
    pthread_cond_wait(&waiter_left, &streams_lock);
  }
  stream **link = &streams;
  while (*link != s) {
    link = &(*link)->next;
  }
  *link = s->next;
  pthread_mutex_unlock(&streams_lock);
  const gpuf_error error = s->error;
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->changed);
  free(s);
  return error.status == GPUF_OK
             ? GPUF_OK
             : gpufi_fail(err, error.status, error.native_code, "%s", error.message);
}

void gpufi_host_stream_drain(int32_t device, gpuf_stream handle) {
  stream *s;
  if (stream_find(device, handle, &s, NULL) == GPUF_OK) {
    stream_drain(s, false);
  }
}

gpuf_status gpufi_host_stream_synchronize(int32_t device, gpuf_stream handle, gpuf_error *err) {
  stream *s;
  gpuf_status status = stream_find(device, handle, &s, err);
  if (status != GPUF_OK) {
    return status;
  }
  const gpuf_error error = stream_drain(s, true);
  if (error.status != GPUF_OK) {
    return gpufi_fail(err, error.status, error.native_code, "%s", error.message);
  }
  return GPUF_OK;
}

/* The device's stream that was made next after stream `after`, up to `last`; NULL if there is none.
 * Called with streams_lock held. */
static stream *stream_after(int32_t device, uint64_t after, uint64_t last) {
  stream *found = NULL;
  for (stream *s = streams; s; s = s->next) {
    if (s->device == device && s->number > after && s->number <= last &&
        (!found || s->number < found->number)) {
      found = s;
    }
  }
  return found;
}

/* Meanwhile others use the device: what waits here may end by work that they enqueue. */
void gpufi_host_device_synchronize(int32_t device) {
  pthread_mutex_lock(&streams_lock);
  const uint64_t last = created_count;
  uint64_t after = 0;
  for (stream *s; (s = stream_after(device, after, last));) {
    after = s->number;
    s->waiter_count++;
    pthread_mutex_unlock(&streams_lock);
    stream_drain(s, false);
    pthread_mutex_lock(&streams_lock);
    s->waiter_count--;
    pthread_cond_broadcast(&waiter_left);
  }
  pthread_mutex_unlock(&streams_lock);
}

gpuf_status gpufi_host_event_create(int32_t device, gpufi_event **out, gpuf_error *err) {
  gpufi_event *event = calloc(1, sizeof(*event));
  if (!event) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for an event");
  }
  pthread_mutex_init(&event->lock, NULL);
  *out = event;
  return GPUF_OK;
}

void gpufi_host_event_destroy(int32_t device, gpufi_event *event) {
  if (event->latest) {
    gpufi_host_recording_release(event->latest);
  }
  pthread_mutex_destroy(&event->lock);
  free(event);
}

gpuf_status gpufi_host_event_record(int32_t device, gpufi_event *event, gpuf_stream handle,
                                    gpuf_error *err) {
  stream *s;
  item *it;
  gpuf_status status = stream_find(device, handle, &s, err);
  if (status == GPUF_OK) {
    status = item_create(ITEM_RECORD, &it, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_host_recording *const r = gpufi_host_recording_create(); /* the item's */
  if (!r) {
    free(it);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory to record an event");
  }
  gpufi_host_recording_hold(r); /* the event's */
  it->recording = r;
  pthread_mutex_lock(&event->lock);
  gpufi_host_recording *const before = event->latest;
  event->latest = r;
  pthread_mutex_unlock(&event->lock);
  if (before) {
    gpufi_host_recording_release(before);
  }
  stream_push(s, it);
  return GPUF_OK;
}

gpuf_status gpufi_host_stream_wait_event(int32_t device, gpuf_stream handle, gpufi_event *event,
                                         bool inherits, gpuf_error *err) {
  stream *s;
  item *it;
  gpuf_status status = stream_find(device, handle, &s, err);
  gpufi_host_recording *const r = status == GPUF_OK ? latest_recording(event) : NULL;
  if (!r) {
    return status;
  }
  status = item_create(ITEM_WAIT, &it, err);
  if (status == GPUF_OK) {
    it->recording = r;
    it->inherits = inherits;
    stream_push(s, it);
  } else {
    gpufi_host_recording_release(r);
  }
  return status;
}

gpuf_status gpufi_host_event_query(int32_t device, gpufi_event *event, bool *done,
                                   gpuf_error *err) {
  gpufi_host_recording *const r = latest_recording(event);
  *done = true;
  if (r) {
    *done = gpufi_host_recording_is_done(r);
    gpufi_host_recording_release(r);
  }
  return GPUF_OK;
}

gpuf_status gpufi_host_event_wait(int32_t device, gpufi_event *event, gpuf_error *err) {
  gpufi_host_recording *const r = latest_recording(event);
  if (!r) {
    return GPUF_OK;
  }
  const gpuf_error error = gpufi_host_recording_await(r);
  gpufi_host_recording_release(r);
  if (error.status != GPUF_OK) {
    return gpufi_fail(err, error.status, error.native_code, "%s", error.message);
  }
  return GPUF_OK;
}

gpuf_status gpufi_host_enqueue(int32_t device, gpuf_stream handle, gpufi_host_work work,
                               const void *args, size_t args_nbytes, gpuf_error *err) {
  stream *s;
  item *it;
  if (args_nbytes > GPUFI_HOST_ARGS_NBYTES) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%zu bytes of kernel arguments; at most %d: pass a pointer instead",
                      args_nbytes, GPUFI_HOST_ARGS_NBYTES);
  }
  gpuf_status status = stream_find(device, handle, &s, err);
  if (status == GPUF_OK) {
    status = item_create(ITEM_WORK, &it, err);
  }
  if (status == GPUF_OK) {
    it->work = work;
    memcpy(it->args, args, args_nbytes);
    stream_push(s, it);
  }
  return status;
}
