/* Streams, events and captured graphs. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

enum kind { RECORD, WAIT, RUN };

struct event {
  uint64_t asked, done, stamp;
};

struct item {
  enum kind kind;
  struct event *event;
  uint64_t ticket; /* which recording of the event */
  struct standin_job *job;
  struct item *next;
};

struct graph {
  struct item *first, **end;
};

struct stream {
  int id, device;
  bool closed;
  int error; /* of a kernel that failed; told by the next wait, as a device does */
  struct graph *capturing;
  struct item *first, **end;
  uint64_t queued, finished;
  struct stream *next;
};

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *streams, *defaults[MOST_DEVICES];
static int next_id;

/* ---- Python's lock: kernels are Python, and torch_npu waits with the lock held in places, as at exit ------------- */

static void *give_python_way(void) {
  int (*holds)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
  void *(*save)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
  return holds && save && holds() ? save() : NULL;
}

static void take_python_back(void *state) {
  void (*restore)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
  if (state && restore) restore(state);
}

/* ---- jobs: the lock is held ------------------------------------------------------------------------------- */

static void let_go(struct standin_job *job) {
  if (job && --job->holders == 0) job->drop(job);
}

static void append(struct item ***end, struct item item) {
  struct item *copy = malloc(sizeof *copy);
  *copy = item;
  copy->next = NULL;
  **end = copy;
  *end = &copy->next;
}

static void pause_before(void) {
  long delay = standin_number("STANDIN_DELAY_US", 0);
  if (delay > 0) usleep((useconds_t)delay);
}

static void *serve(void *argument) {
  struct stream *s = argument;
  standin_current = s->device;
  pthread_mutex_lock(&standin_lock);
  for (;;) {
    while (!s->first && !s->closed) pthread_cond_wait(&changed, &standin_lock);
    struct item *item = s->first;
    if (!item) break;
    if (item->kind == WAIT)
      while (item->event->done < item->ticket) pthread_cond_wait(&changed, &standin_lock);
    if (item->kind == RECORD && item->ticket > item->event->done) {
      item->event->done = item->ticket;
      item->event->stamp = standin_now_ns();
    }
    if (item->kind == RUN) {
      pthread_mutex_unlock(&standin_lock);
      pause_before();
      int error = item->job->run(item->job);
      pthread_mutex_lock(&standin_lock);
      if (error) s->error = error;
      let_go(item->job);
    }
    s->first = item->next;
    if (!s->first) s->end = &s->first;
    s->finished++;
    free(item);
    pthread_cond_broadcast(&changed);
  }
  pthread_mutex_unlock(&standin_lock);
  return NULL; /* the stream itself stays: a late wait may still name it */
}

static struct stream *open_stream(int device) {
  struct stream *s = calloc(1, sizeof *s);
  s->id = next_id++;
  s->device = device;
  s->end = &s->first;
  s->next = streams;
  streams = s;
  pthread_t thread;
  pthread_create(&thread, NULL, serve, s);
  pthread_detach(thread);
  return s;
}

static struct stream *resolve(aclrtStream stream) {
  if (stream) return stream;
  int device = standin_current < 0 ? 0 : standin_current;
  if (!defaults[device]) defaults[device] = open_stream(device);
  return defaults[device];
}

static void push(aclrtStream stream, struct item item) {
  struct stream *s = resolve(stream);
  if (s->capturing) {
    append(&s->capturing->end, item);
    return;
  }
  append(&s->end, item);
  s->queued++;
  pthread_cond_broadcast(&changed);
}

int standin_enqueue(aclrtStream stream, struct standin_job *job) {
  pthread_mutex_lock(&standin_lock);
  push(stream, (struct item){.kind = RUN, .job = job});
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

/* ---- copies and callbacks -------------------------------------------------------------------------------- */

struct move {
  struct standin_job job;
  void *to;
  const void *from; /* NULL: fill with `value` */
  int value;
  size_t count;
  aclrtHostFunc call;
};

static int run_move(struct standin_job *job) {
  struct move *m = (struct move *)job;
  if (m->call) m->call(m->to);
  else if (m->from) memmove(m->to, m->from, m->count);
  else memset(m->to, m->value, m->count);
  return ACL_SUCCESS;
}

static void drop_move(struct standin_job *job) { free(job); }

static int enqueue_move(aclrtStream stream, struct move move) {
  struct move *m = malloc(sizeof *m);
  *m = move;
  m->job = (struct standin_job){1, run_move, drop_move};
  return standin_enqueue(stream, &m->job);
}

aclError aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  (void)kind;
  if (count > room || !from) return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "more than there is room for");
  return enqueue_move(stream, (struct move){.to = to, .from = from, .count = count});
}

aclError aclrtMemsetAsync(void *to, size_t room, int32_t value, size_t count, aclrtStream stream) {
  if (count > room) return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "more than there is room for");
  return enqueue_move(stream, (struct move){.to = to, .value = value, .count = count});
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc function, void *argument) {
  return enqueue_move(stream, (struct move){.call = function, .to = argument});
}

aclError aclrtLaunchCallback(aclrtCallback function, void *argument, aclrtCallbackBlockType block,
                             aclrtStream stream) {
  (void)block;
  return aclrtLaunchHostFunc(stream, function, argument);
}

/* ---- streams ---------------------------------------------------------------------------------------------- */

aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag) {
  (void)priority;
  (void)flag;
  if (standin_current < 0) return standin_fail(ACL_ERROR_RT_CONTEXT_NULL, "no device was selected");
  pthread_mutex_lock(&standin_lock);
  *stream = open_stream(standin_current);
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

aclError aclrtCreateStream(aclrtStream *stream) { return aclrtCreateStreamWithConfig(stream, 0, 0); }

aclError aclrtDestroyStream(aclrtStream stream) {
  pthread_mutex_lock(&standin_lock);
  if (stream) ((struct stream *)stream)->closed = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}
aclError aclrtDestroyStreamForce(aclrtStream stream) { return aclrtDestroyStream(stream); }

/* Wait, at most `ms` unless that is negative, for what is queued now. */
static int finish(struct stream *s, int32_t ms) {
  if (s->capturing) return standin_fail(ACL_ERROR_RT_STREAM_CAPTURED, "a stream that captures cannot be waited for");
  uint64_t mark = s->queued;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += ms / 1000;
  until.tv_nsec += (ms % 1000) * 1000000L;
  if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
  while (s->finished < mark) {
    if (ms < 0) pthread_cond_wait(&changed, &standin_lock);
    else if (pthread_cond_timedwait(&changed, &standin_lock, &until) == ETIMEDOUT)
      return standin_fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "the stream did not finish in time");
  }
  int error = s->error;
  s->error = 0;
  return error ? standin_fail(error, "a kernel on the stream failed") : ACL_SUCCESS;
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t ms) {
  void *python = give_python_way();
  pthread_mutex_lock(&standin_lock);
  int error = finish(resolve(stream), ms);
  pthread_mutex_unlock(&standin_lock);
  take_python_back(python);
  return error;
}
aclError aclrtSynchronizeStream(aclrtStream stream) { return aclrtSynchronizeStreamWithTimeout(stream, -1); }

aclError aclrtSynchronizeDeviceWithTimeout(int32_t ms) {
  int error = ACL_SUCCESS;
  void *python = give_python_way();
  pthread_mutex_lock(&standin_lock);
  for (struct stream *s = streams; s && !error; s = s->next)
    if (s->device == standin_current) error = finish(s, ms);
  pthread_mutex_unlock(&standin_lock);
  take_python_back(python);
  return error;
}
aclError aclrtSynchronizeDevice(void) { return aclrtSynchronizeDeviceWithTimeout(-1); }

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status) {
  pthread_mutex_lock(&standin_lock);
  struct stream *s = resolve(stream);
  *status = s->finished < s->queued ? ACL_STREAM_STATUS_NOT_READY : ACL_STREAM_STATUS_COMPLETE;
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t *id) {
  pthread_mutex_lock(&standin_lock);
  *id = resolve(stream)->id;
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

/* ---- events ----------------------------------------------------------------------------------------------- */

aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag) {
  (void)flag;
  *event = calloc(1, sizeof(struct event));
  return ACL_SUCCESS;
}
aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag) { return aclrtCreateEventExWithFlag(event, flag); }
aclError aclrtCreateEvent(aclrtEvent *event) { return aclrtCreateEventExWithFlag(event, 0); }

/* Not freed: what is queued may still name it. */
aclError aclrtDestroyEvent(aclrtEvent event) {
  (void)event;
  return ACL_SUCCESS;
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  struct event *e = event;
  pthread_mutex_lock(&standin_lock);
  push(stream, (struct item){.kind = RECORD, .event = e, .ticket = ++e->asked});
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  struct event *e = event;
  pthread_mutex_lock(&standin_lock);
  push(stream, (struct item){.kind = WAIT, .event = e, .ticket = e->asked});
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  (void)event;
  (void)stream;
  return ACL_SUCCESS;
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  struct event *e = event;
  void *python = give_python_way();
  pthread_mutex_lock(&standin_lock);
  for (uint64_t ticket = e->asked; e->done < ticket;) pthread_cond_wait(&changed, &standin_lock);
  pthread_mutex_unlock(&standin_lock);
  take_python_back(python);
  return ACL_SUCCESS;
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status) {
  struct event *e = event;
  pthread_mutex_lock(&standin_lock);
  *status = e->done >= e->asked ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status) {
  aclrtEventRecordedStatus recorded;
  aclrtQueryEventStatus(event, &recorded);
  *status = recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE ? ACL_EVENT_WAIT_STATUS_COMPLETE
                                                           : ACL_EVENT_WAIT_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

aclError aclrtEventElapsedTime(float *ms, aclrtEvent start, aclrtEvent end) {
  *ms = (float)((double)(((struct event *)end)->stamp - ((struct event *)start)->stamp) / 1e6);
  return ACL_SUCCESS;
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t *microseconds) {
  *microseconds = ((struct event *)event)->stamp / 1000;
  return ACL_SUCCESS;
}

/* ---- graphs: what a capturing stream was given, run again on demand ------------------------------------------ */

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
  (void)mode;
  struct graph *graph = calloc(1, sizeof *graph);
  graph->end = &graph->first;
  pthread_mutex_lock(&standin_lock);
  resolve(stream)->capturing = graph;
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *graph) {
  pthread_mutex_lock(&standin_lock);
  struct graph *capturing = resolve(stream)->capturing;
  *status = capturing ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE : ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  if (graph) *graph = (aclmdlRI)capturing;
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *graph) {
  pthread_mutex_lock(&standin_lock);
  struct stream *s = resolve(stream);
  *graph = (aclmdlRI)s->capturing;
  s->capturing = NULL;
  pthread_mutex_unlock(&standin_lock);
  return *graph ? ACL_SUCCESS : standin_fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream does not capture");
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode) {
  (void)mode;
  return ACL_SUCCESS;
}

aclError aclmdlRIExecuteAsync(aclmdlRI graph, aclrtStream stream) {
  pthread_mutex_lock(&standin_lock);
  for (struct item *item = ((struct graph *)graph)->first; item; item = item->next) {
    struct item again = *item;
    if (again.job) again.job->holders++;
    if (again.event) again.ticket = again.kind == RECORD ? ++again.event->asked : again.event->asked;
    push(stream, again);
  }
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

/* A replay that is still queued holds its jobs itself. */
aclError aclmdlRIDestroy(aclmdlRI graph) {
  pthread_mutex_lock(&standin_lock);
  for (struct item *item = ((struct graph *)graph)->first, *next; item; item = next) {
    next = item->next;
    let_go(item->job);
    free(item);
  }
  pthread_mutex_unlock(&standin_lock);
  free(graph);
  return ACL_SUCCESS;
}

aclError aclmdlRIGetId(aclmdlRI graph, uint32_t *id) {
  (void)graph;
  *id = 1;
  return ACL_SUCCESS;
}
