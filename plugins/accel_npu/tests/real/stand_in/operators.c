/* Operators by name: descriptors, attributes, and the job that computes one on its stream.
 *
 * torch_npu asks for an operator by name, through two functions, where the library of newer operators (newer.c) has
 * none. What an operator computes is Python's affair (kernels.py): the job calls back with the name, the
 * attributes as JSON, and the tensors.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

enum { MOST_NAMES = 512 };

struct aclTensorDesc {
  int dtype, rank, format;
  int64_t shape[MOST_DIMENSIONS];
  bool on_host;   /* the buffer is the caller's host memory, valid only during the call */
  void *constant; /* a copy of a value that takes the place of the buffer */
  size_t constant_size;
};
struct aclDataBuffer {
  void *address;
  size_t size;
};
struct aclopAttr {
  char *json;
  size_t length;
};

aclTensorDesc *aclCreateTensorDesc(aclDataType dtype, int rank, const int64_t *shape, aclFormat format) {
  struct aclTensorDesc *d = calloc(1, sizeof *d);
  d->dtype = (int)dtype;
  d->rank = rank < MOST_DIMENSIONS ? rank : MOST_DIMENSIONS;
  d->format = (int)format;
  if (d->rank > 0) memcpy(d->shape, shape, (size_t)d->rank * sizeof *shape);
  return d;
}

void aclDestroyTensorDesc(const aclTensorDesc *desc) {
  if (desc) free(desc->constant);
  free((void *)desc);
}

aclDataType aclGetTensorDescType(const aclTensorDesc *desc) { return (aclDataType)desc->dtype; }
aclFormat aclGetTensorDescFormat(const aclTensorDesc *desc) { return (aclFormat)desc->format; }
size_t aclGetTensorDescNumDims(const aclTensorDesc *desc) { return (size_t)desc->rank; }
aclError aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *size) {
  *size = desc->shape[index];
  return ACL_SUCCESS;
}
/* The device's own layout of the same tensor: all of ours are plain. */
aclError aclSetTensorFormat(aclTensorDesc *desc, aclFormat format) {
  (void)desc;
  (void)format;
  return ACL_SUCCESS;
}
aclError aclSetTensorShape(aclTensorDesc *desc, int rank, const int64_t *shape) {
  (void)desc;
  (void)rank;
  (void)shape;
  return ACL_SUCCESS;
}
void aclSetTensorDescName(aclTensorDesc *desc, const char *name) {
  (void)desc;
  (void)name;
}
aclError aclSetTensorPlaceMent(aclTensorDesc *desc, aclMemType place) {
  desc->on_host = place != ACL_MEMTYPE_DEVICE;
  return ACL_SUCCESS;
}

static void *copy_of(const void *data, size_t size) {
  void *copy = malloc(size ? size : 1);
  if (size) memcpy(copy, data, size);
  return copy;
}

aclError aclSetTensorConst(aclTensorDesc *desc, void *data, size_t size) {
  free(desc->constant);
  desc->constant = copy_of(data, size);
  desc->constant_size = size;
  return ACL_SUCCESS;
}

aclDataBuffer *aclCreateDataBuffer(void *address, size_t size) {
  struct aclDataBuffer *b = malloc(sizeof *b);
  *b = (struct aclDataBuffer){address, size};
  return b;
}
aclError aclDestroyDataBuffer(const aclDataBuffer *buffer) {
  free((void *)buffer);
  return ACL_SUCCESS;
}
void *aclGetDataBufferAddr(const aclDataBuffer *buffer) { return buffer->address; }

/* ---- attributes, kept as the inside of a JSON object ---------------------------------------------------------- */

aclopAttr *aclopCreateAttr(void) { return calloc(1, sizeof(struct aclopAttr)); }

void aclopDestroyAttr(const aclopAttr *attr) {
  if (attr) free(attr->json);
  free((void *)attr);
}

static int put(aclopAttr *attr, const char *name, const char *value) {
  size_t room = attr->length + strlen(name) + strlen(value) + 5;
  attr->json = realloc(attr->json, room);
  attr->length += (size_t)sprintf(attr->json + attr->length, "%s\"%s\":%s", attr->length ? "," : "", name, value);
  return ACL_SUCCESS;
}

aclError aclopSetAttrBool(aclopAttr *attr, const char *name, uint8_t value) {
  return put(attr, name, value ? "true" : "false");
}
aclError aclopSetAttrInt(aclopAttr *attr, const char *name, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  return put(attr, name, text);
}
aclError aclopSetAttrDataType(aclopAttr *attr, const char *name, aclDataType value) {
  return aclopSetAttrInt(attr, name, (int64_t)value);
}
aclError aclopSetAttrFloat(aclopAttr *attr, const char *name, float value) {
  char text[48];
  snprintf(text, sizeof text, "%.9g", (double)value);
  return put(attr, name, text);
}
aclError aclopSetAttrString(aclopAttr *attr, const char *name, const char *value) {
  char text[512];
  snprintf(text, sizeof text, "\"%s\"", value);
  return put(attr, name, text);
}

static int put_list(aclopAttr *attr, const char *name, int count, const int64_t *integers, const float *floats) {
  char *text = malloc((size_t)count * 32 + 3), *at = text;
  at += sprintf(at, "[");
  for (int i = 0; i < count; i++)
    at += integers ? sprintf(at, "%s%lld", i ? "," : "", (long long)integers[i])
                   : sprintf(at, "%s%.9g", i ? "," : "", (double)floats[i]);
  sprintf(at, "]");
  put(attr, name, text);
  free(text);
  return ACL_SUCCESS;
}

aclError aclopSetAttrListInt(aclopAttr *attr, const char *name, int count, const int64_t *values) {
  return put_list(attr, name, count, values, NULL);
}
aclError aclopSetAttrListFloat(aclopAttr *attr, const char *name, int count, const float *values) {
  return put_list(attr, name, count, NULL, values);
}

/* ---- the job -------------------------------------------------------------------------------------------------- */

/* 0, or the error that the stream then reports. */
typedef int (*compute_fn)(const char *name, const char *attributes, int inputs, const struct tensor *in, int outputs,
                          const struct tensor *out);
static compute_fn compute;
static char *names[MOST_NAMES];

void standin_set_compute(compute_fn function) { compute = function; }

int standin_find_kernels(void) {
  int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
  int (*run)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
  if (compute || !ensure || !release || !run) return ACL_SUCCESS;
  int state = ensure();
  int error = run("import stand_in.kernels; stand_in.kernels.install()");
  release(state);
  return error ? standin_fail(ACL_ERROR_FAILURE, "Python cannot import stand_in.kernels") : ACL_SUCCESS;
}

static bool is_known(const char *name) {
  for (int i = 0; i < MOST_NAMES && names[i]; i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

/* Tell that an operator exists: another one is refused at once, as by the vendor's compiler. */
void standin_add_operator(const char *name) {
  if (is_known(name)) return;
  for (int i = 0; i < MOST_NAMES; i++)
    if (!names[i]) {
      names[i] = strdup(name);
      return;
    }
}

struct operation {
  struct standin_job job;
  char *name, *attributes;
  int inputs, outputs;
  void **constants; /* of the inputs, NULL for one that lies on the device */
  struct tensor tensors[];
};

static int run_operation(struct standin_job *job) {
  struct operation *o = (struct operation *)job;
  return compute(o->name, o->attributes, o->inputs, o->tensors, o->outputs, o->tensors + o->inputs);
}

static void drop_operation(struct standin_job *job) {
  struct operation *o = (struct operation *)job;
  for (int i = 0; i < o->inputs; i++) free(o->constants[i]);
  free(o->constants);
  free(o->name);
  free(o->attributes);
  free(o);
}

/* NULL for one that nobody has. */
static struct operation *new_operation(const char *name, const char *attributes, int inputs, int outputs) {
  standin_trace(name);
  if (!compute || !is_known(name)) {
    char message[128];
    snprintf(message, sizeof message, "the stand-in has no operator %s", name);
    standin_fail(ACL_ERROR_OP_NOT_FOUND, message);
    return NULL;
  }
  struct operation *o = calloc(1, sizeof *o + (size_t)(inputs + outputs) * sizeof(struct tensor));
  o->job = (struct standin_job){1, run_operation, drop_operation};
  o->name = strdup(name);
  o->attributes = strdup(attributes);
  o->inputs = inputs;
  o->outputs = outputs;
  o->constants = calloc((size_t)inputs + 1, sizeof *o->constants);
  return o;
}

struct standin_job *standin_operation(const char *name, const char *arguments, int count,
                                      const struct tensor *tensors) {
  struct operation *o = new_operation(name, arguments, count, 0);
  if (o && count) memcpy(o->tensors, tensors, (size_t)count * sizeof *tensors);
  return (struct standin_job *)o;
}

static struct tensor tensor_of(const aclTensorDesc *desc, void *address) {
  struct tensor t = {.dtype = desc->dtype, .rank = desc->rank, .address = address};
  memcpy(t.shape, desc->shape, sizeof t.shape);
  return t;
}

aclError aclopCompileAndExecute(const char *name, int inputs, const aclTensorDesc *const in[],
                                const aclDataBuffer *const in_data[], int outputs, const aclTensorDesc *const out[],
                                aclDataBuffer *const out_data[], const aclopAttr *attr, aclopEngineType engine,
                                aclopCompileType compile, const char *path, aclrtStream stream) {
  (void)engine;
  (void)compile;
  (void)path;
  size_t length = attr ? attr->length : 0;
  char *attributes = calloc(1, length + 3);
  sprintf(attributes, "{%s}", length ? attr->json : "");
  struct operation *o = new_operation(name, attributes, inputs, outputs);
  free(attributes);
  if (!o) return ACL_ERROR_OP_NOT_FOUND;
  for (int i = 0; i < inputs; i++) {
    if (in[i]->constant) o->constants[i] = copy_of(in[i]->constant, in[i]->constant_size);
    else if (in[i]->on_host) o->constants[i] = copy_of(in_data[i]->address, in_data[i]->size);
    o->tensors[i] = tensor_of(in[i], o->constants[i] ? o->constants[i] : in_data[i]->address);
  }
  for (int i = 0; i < outputs; i++) o->tensors[inputs + i] = tensor_of(out[i], out_data[i]->address);
  return standin_enqueue(stream, &o->job);
}

aclError aclopCompileAndExecuteV2(const char *name, int inputs, aclTensorDesc *in[], aclDataBuffer *in_data[],
                                  int outputs, aclTensorDesc *out[], aclDataBuffer *out_data[], aclopAttr *attr,
                                  aclopEngineType engine, aclopCompileType compile, const char *path,
                                  aclrtStream stream) {
  return aclopCompileAndExecute(name, inputs, (const aclTensorDesc *const *)in, (const aclDataBuffer *const *)in_data,
                                outputs, (const aclTensorDesc *const *)out, out_data, attr, engine, compile, path,
                                stream);
}
