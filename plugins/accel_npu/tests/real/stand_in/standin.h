/* What the parts of the stand-in for CANN share.
 *
 * Devices are host memory. Every stream is a queue with a thread of its own, so copies and kernels are as late
 * as on a device, and events and stream waits mean something. Signatures and error codes come from the headers
 * that the torch_npu wheel ships, so the compiler checks ours against them.
 *
 * Environment, read when used: STANDIN_DEVICES (2), STANDIN_MEMORY_MB (1024, of each device), STANDIN_SOC
 * (Ascend910B1), STANDIN_CANN (8.3.0), STANDIN_DELAY_US (0, before each copy and kernel), STANDIN_TRACE (print
 * what is called to stderr).
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acl/acl.h"
#include "acl/acl_op_compiler.h"

enum { MOST_DEVICES = 16, MOST_DIMENSIONS = 16 };

/* A number from the environment. */
long standin_number(const char *name, long otherwise);
/* Tell that a function was called, where somebody wants to know. */
void standin_trace(const char *name);
/* Keep `message` for aclGetRecentErrMsg and return `code`. */
int standin_fail(int code, const char *message);
uint64_t standin_now_ns(void);

int standin_device_count(void);
/* The device that this thread has selected, -1 for none. */
extern __thread int standin_current;

/* One lock for all that threads share. */
extern pthread_mutex_t standin_lock;

/* A piece of work that a stream runs; it is freed with `drop` when nobody holds it any more. */
struct standin_job {
  int holders;
  int (*run)(struct standin_job *);
  void (*drop)(struct standin_job *);
};
/* Queue `job` on `stream`, or record it where the stream is capturing. Takes over the caller's hold. */
int standin_enqueue(aclrtStream stream, struct standin_job *job);

/* What a kernel is given of a tensor. */
struct tensor {
  int dtype, rank;
  int64_t shape[MOST_DIMENSIONS];
  int strided; /* whether `strides`, in elements, tell where its numbers lie; else they lie side by side */
  int64_t strides[MOST_DIMENSIONS];
  void *address;
};
/* A job that computes the operator; NULL, with a message, for one that no kernel is known of. */
struct standin_job *standin_operation(const char *name, const char *arguments, int count, const struct tensor *tensors);

/* Have Python bring the operators' kernels, where this process is one of Python's: a user's process knows nothing of
 * ours. */
int standin_find_kernels(void);

#endif
