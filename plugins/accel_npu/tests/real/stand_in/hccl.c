/* HCCL, the vendor's collectives: ranks are processes of one host, and every two of them share a socket.
 *
 * A collective is a job on its stream, as a kernel is. A rank whose peer is gone reports an error there, as the vendor
 * does when its retries are used up. The wheel's hccl.h is C++ alone: types and values here are as there.
 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

enum { ROOT_INFO_BYTES = 4108, MOST_RANKS = 16, PEER_LOST = 507018, NOT_SUPPORTED = 5, START_SECONDS = 60 };
enum type { INT8, INT16, INT32, FP16, FP32, INT64, UINT64, UINT8, UINT16, UINT32, FP64, BFP16 };
enum reduction { SUM, PROD, MAX, MIN };

static size_t size_of(int type) {
  static const size_t sizes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
  return sizes[type];
}

struct group {
  int rank, size, sockets[MOST_RANKS];
  char name[80];
  pthread_mutex_t one_at_a_time;
};

/* ---- coming together ------------------------------------------------------------------------------------------ */

int HcclGetRootInfo(char *info) {
  memset(info, 0, ROOT_INFO_BYTES);
  snprintf(info, 64, "accel-hccl-%d-%llx", (int)getpid(), (unsigned long long)standin_now_ns());
  return 0;
}

/* In Linux's abstract namespace: no file is left over. */
static socklen_t address_of(const char *info, int rank, struct sockaddr_un *address) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s-%d", info, rank);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int call(const char *info, int rank) {
  struct sockaddr_un address;
  socklen_t length = address_of(info, rank, &address);
  for (int tries = 0; tries < START_SECONDS * 100; tries++) {
    int found = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!connect(found, (struct sockaddr *)&address, length)) return found;
    close(found);
    usleep(10000);
  }
  return -1;
}

static int join(struct group *g, const char *info) {
  struct sockaddr_un address;
  socklen_t length = address_of(info, g->rank, &address);
  int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(door, (struct sockaddr *)&address, length) || listen(door, MOST_RANKS)) return -1;
  for (int other = 0; other < g->rank; other++) {
    if ((g->sockets[other] = call(info, other)) < 0) return -1;
    if (write(g->sockets[other], &g->rank, sizeof g->rank) != sizeof g->rank) return -1;
  }
  for (int left = g->size - 1 - g->rank; left > 0; left--) {
    struct pollfd wait = {.fd = door, .events = POLLIN};
    if (poll(&wait, 1, START_SECONDS * 1000) != 1) return -1;
    int found = accept4(door, NULL, NULL, SOCK_CLOEXEC), other;
    if (read(found, &other, sizeof other) != sizeof other) return -1;
    g->sockets[other] = found;
  }
  close(door);
  return 0;
}

int HcclCommInitRootInfoConfig(uint32_t size, const char *info, uint32_t rank, const void *config, void **group) {
  (void)config;
  struct group *g = calloc(1, sizeof *g);
  *g = (struct group){.rank = (int)rank, .size = (int)size, .one_at_a_time = PTHREAD_MUTEX_INITIALIZER};
  snprintf(g->name, sizeof g->name, "%.60s", info);
  if (size > MOST_RANKS || join(g, info)) return standin_fail(NOT_SUPPORTED, "the ranks did not come together");
  *group = g;
  return 0;
}
int HcclCommInitRootInfo(uint32_t size, const char *info, uint32_t rank, void **group) {
  return HcclCommInitRootInfoConfig(size, info, rank, NULL, group);
}

/* The sockets stay: a job that is still queued may use them. */
int HcclCommDestroy(void *group) {
  (void)group;
  return 0;
}
int HcclGetCommName(struct group *g, char *name) {
  strcpy(name, g->name);
  return 0;
}
int HcclGetCommAsyncError(void *group, int *error) {
  (void)group;
  *error = 0;
  return 0;
}
const char *HcclGetErrorString(int code) { return code ? "the stand-in's HCCL failed" : "no error"; }

/* ---- everybody sends to everybody ----------------------------------------------------------------------------- */

struct part {
  char *data;
  size_t left;
};

/* Each way of each socket as it is ready, so that nobody waits for somebody who waits. */
static int exchange(struct group *g, struct part *out, struct part *in) {
  for (;;) {
    struct pollfd wait[MOST_RANKS];
    int busy = 0;
    for (int r = 0; r < g->size; r++) {
      short events = (short)((out[r].left ? POLLOUT : 0) | (in[r].left ? POLLIN : 0));
      wait[r] = (struct pollfd){.fd = r == g->rank || !events ? -1 : g->sockets[r], .events = events};
      busy |= wait[r].fd >= 0;
    }
    if (!busy) return 0;
    if (poll(wait, (nfds_t)g->size, -1) < 0 && errno != EINTR) return PEER_LOST;
    for (int r = 0; r < g->size; r++) {
      if (wait[r].fd < 0 || !wait[r].revents) continue;
      ssize_t moved = 0;
      if (wait[r].revents & POLLOUT) {
        moved = send(wait[r].fd, out[r].data, out[r].left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (moved > 0) out[r].data += moved, out[r].left -= (size_t)moved;
      } else {
        moved = recv(wait[r].fd, in[r].data, in[r].left, MSG_DONTWAIT);
        if (moved > 0) in[r].data += moved, in[r].left -= (size_t)moved;
      }
      if (!moved || (moved < 0 && errno != EAGAIN)) return PEER_LOST;
    }
  }
}

/* ---- arithmetic ----------------------------------------------------------------------------------------------- */

static float from_bfloat16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}
static uint16_t to_bfloat16(float value) {
  uint32_t wide;
  memcpy(&wide, &value, sizeof wide);
  return (uint16_t)((wide + 0x7fff + ((wide >> 16) & 1)) >> 16); /* to the nearest, ties to even */
}

#define COMBINE(a, b) (how == SUM ? (a) + (b) : how == PROD ? (a) * (b) : how == MAX ? ((a) > (b) ? (a) : (b)) : (a) < (b) ? (a) : (b))
#define OVER(type)                                                                                       \
  for (size_t i = 0; i < count; i++) ((type *)into)[i] = (type)COMBINE(((type *)into)[i], ((type *)from)[i]); \
  break

static void reduce(void *into, void *from, size_t count, int type, int how) {
  switch (type) {
    case INT8: OVER(int8_t);
    case INT16: OVER(int16_t);
    case INT32: OVER(int32_t);
    case INT64: OVER(int64_t);
    case UINT8: OVER(uint8_t);
    case UINT16: OVER(uint16_t);
    case UINT32: OVER(uint32_t);
    case UINT64: OVER(uint64_t);
    case FP16: OVER(_Float16);
    case FP32: OVER(float);
    case FP64: OVER(double);
    default:
      for (size_t i = 0; i < count; i++) {
        float a = from_bfloat16(((uint16_t *)into)[i]), b = from_bfloat16(((uint16_t *)from)[i]);
        ((uint16_t *)into)[i] = to_bfloat16(COMBINE(a, b));
      }
  }
}

/* ---- the job: what goes to each rank, what comes from each, and what becomes of it ------------------------------- */

struct collective {
  struct standin_job job;
  struct group *group;
  struct part out[MOST_RANKS], in[MOST_RANKS];
  int reduces, type, how;
  void *result;
  size_t count;
};

static int run_collective(struct standin_job *job) {
  struct collective c = *(struct collective *)job; /* a graph runs it again */
  struct group *g = c.group;
  size_t bytes = c.count * size_of(c.type);
  char *room = c.reduces ? malloc(bytes * (size_t)g->size + 1) : NULL;
  for (int r = 0; c.reduces && r < g->size; r++) c.in[r] = (struct part){room + (size_t)r * bytes, bytes};
  if (c.in[g->rank].left) memmove(c.in[g->rank].data, c.out[g->rank].data, c.in[g->rank].left);
  pthread_mutex_lock(&g->one_at_a_time);
  int error = exchange(g, c.out, c.in);
  pthread_mutex_unlock(&g->one_at_a_time);
  /* From the first rank on: every rank adds in the same order and has the same bits. */
  for (int r = 1; c.reduces && !error && r < g->size; r++) reduce(room, room + (size_t)r * bytes, c.count, c.type, c.how);
  if (c.reduces && !error) memcpy(c.result, room, bytes);
  free(room);
  return error;
}

static void drop_collective(struct standin_job *job) { free(job); }

static struct collective *new_collective(struct group *g, int type) {
  struct collective *c = calloc(1, sizeof *c);
  c->job = (struct standin_job){1, run_collective, drop_collective};
  c->group = g;
  c->type = type;
  return c;
}

static struct part piece(const void *data, uint64_t first, uint64_t count, int type) {
  return (struct part){(char *)data + first * size_of(type), count * size_of(type)};
}

#define EACH(g, r) for (int r = 0; r < (g)->size; r++)
#define ON(stream, c) return standin_enqueue(stream, &(c)->job)

int HcclAllReduce(void *send, void *result, uint64_t count, int type, int how, struct group *g, aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  EACH(g, r) c->out[r] = piece(send, 0, count, type);
  c->reduces = 1, c->how = how, c->result = result, c->count = count;
  ON(stream, c);
}

int HcclReduceScatter(void *send, void *result, uint64_t count, int type, int how, struct group *g,
                      aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  EACH(g, r) c->out[r] = piece(send, (uint64_t)r * count, count, type);
  c->reduces = 1, c->how = how, c->result = result, c->count = count;
  ON(stream, c);
}

/* The others' result stays as it is. */
int HcclReduce(void *send, void *result, uint64_t count, int type, int how, uint32_t root, struct group *g,
               aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  c->out[root] = piece(send, 0, count, type);
  if ((int)root == g->rank) c->reduces = 1, c->how = how, c->result = result, c->count = count;
  ON(stream, c);
}

int HcclBroadcast(void *data, uint64_t count, int type, uint32_t root, struct group *g, aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  if ((int)root != g->rank) c->in[root] = piece(data, 0, count, type);
  else EACH(g, r) c->out[r] = piece(data, 0, count, type);
  ON(stream, c);
}

int HcclScatter(void *send, void *result, uint64_t count, int type, uint32_t root, struct group *g,
                aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  if ((int)root == g->rank) EACH(g, r) c->out[r] = piece(send, (uint64_t)r * count, count, type);
  c->in[root] = piece(result, 0, count, type);
  ON(stream, c);
}

int HcclAllGather(void *send, void *result, uint64_t count, int type, struct group *g, aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  EACH(g, r) {
    c->out[r] = piece(send, 0, count, type);
    c->in[r] = piece(result, (uint64_t)r * count, count, type);
  }
  ON(stream, c);
}

int HcclAlltoAllV(const void *send, const uint64_t *counts, const uint64_t *firsts, int type, const void *result,
                  const uint64_t *in_counts, const uint64_t *in_firsts, int in_type, struct group *g,
                  aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  EACH(g, r) {
    c->out[r] = piece(send, firsts[r], counts[r], type);
    c->in[r] = piece(result, in_firsts[r], in_counts[r], in_type);
  }
  ON(stream, c);
}

int HcclAlltoAll(const void *send, uint64_t count, int type, const void *result, uint64_t in_count, int in_type,
                 struct group *g, aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  EACH(g, r) {
    c->out[r] = piece(send, (uint64_t)r * count, count, type);
    c->in[r] = piece(result, (uint64_t)r * in_count, in_count, in_type);
  }
  ON(stream, c);
}

int HcclSend(void *data, uint64_t count, int type, uint32_t to, struct group *g, aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  c->out[to] = piece(data, 0, count, type);
  ON(stream, c);
}

int HcclRecv(void *data, uint64_t count, int type, uint32_t from, struct group *g, aclrtStream stream) {
  struct collective *c = new_collective(g, type);
  c->in[from] = piece(data, 0, count, type);
  ON(stream, c);
}
