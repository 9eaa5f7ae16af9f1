/* CANN's newer operator library, libopapi.so: a function an operator (aclnnAdd), which takes tensors with strides,
 * lists of them, and numbers.
 *
 * The wheel ships no header of it; the signatures of what makes arguments are in torch_npu's op_api_common_base.h, those
 * of the operators in CANN's documentation. torch_npu looks every function up by name, and takes the operator by name
 * (operators.c) where one is not here. What they compute is Python's affair (newer.py).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

enum kind { TENSOR, NUMBER, LIST };
/* An argument. */
struct object {
  enum kind kind;
  struct tensor tensor;
  char text[64]; /* a number as JSON */
  uint64_t count;
  const struct object *const *items;
};

static struct object *make(struct object filled) {
  struct object *o = malloc(sizeof *o);
  *o = filled;
  return o;
}

static int drop(const struct object *o) {
  free((void *)o);
  return ACL_SUCCESS;
}

size_t aclDataTypeSize(aclDataType dtype) {
  switch (dtype) {
    case ACL_BOOL: case ACL_INT8: case ACL_UINT8: return 1;
    case ACL_FLOAT16: case ACL_BF16: case ACL_INT16: case ACL_UINT16: return 2;
    case ACL_INT64: case ACL_UINT64: case ACL_DOUBLE: return 8;
    default: return 4;
  }
}

struct object *aclCreateTensor(const int64_t *shape, uint64_t rank, aclDataType dtype, const int64_t *strides,
                               int64_t offset, aclFormat format, const int64_t *stored, uint64_t stored_rank,
                               void *data) {
  (void)format;
  (void)stored;
  (void)stored_rank;
  struct object o = {.kind = TENSOR, .tensor = {.dtype = (int)dtype, .rank = (int)rank, .strided = 1}};
  memcpy(o.tensor.shape, shape, rank * sizeof *shape);
  memcpy(o.tensor.strides, strides, rank * sizeof *strides);
  o.tensor.address = data ? (char *)data + offset * (int64_t)aclDataTypeSize(dtype) : NULL;
  return make(o);
}
int aclDestroyTensor(const struct object *o) { return drop(o); }

static void write_number(char *text, size_t room, double value) {
  if (isnan(value)) snprintf(text, room, "NaN");
  else if (isinf(value)) snprintf(text, room, value < 0 ? "-Infinity" : "Infinity");
  else snprintf(text, room, "%.17g", value);
}

struct object *aclCreateScalar(void *value, aclDataType dtype) {
  struct object o = {.kind = NUMBER};
  if (dtype == ACL_DOUBLE) write_number(o.text, sizeof o.text, *(double *)value);
  else if (dtype == ACL_FLOAT) write_number(o.text, sizeof o.text, *(float *)value);
  else if (dtype == ACL_INT64) snprintf(o.text, sizeof o.text, "%lld", *(long long *)value);
  else if (dtype == ACL_INT32) snprintf(o.text, sizeof o.text, "%d", *(int *)value);
  else if (dtype == ACL_BOOL) snprintf(o.text, sizeof o.text, *(bool *)value ? "true" : "false");
  else return NULL;
  return make(o);
}
int aclDestroyScalar(const struct object *o) { return drop(o); }

/* The list takes over what is in it. */
static struct object *make_list(const struct object *const *items, uint64_t count) {
  const struct object **kept = malloc((count + 1) * sizeof *kept);
  memcpy(kept, items, count * sizeof *kept);
  return make((struct object){.kind = LIST, .count = count, .items = kept});
}
static int drop_list(const struct object *list) {
  for (uint64_t i = 0; list && i < list->count; i++) drop(list->items[i]);
  if (list) free((void *)list->items);
  return drop(list);
}
struct object *aclCreateTensorList(const struct object *const *items, uint64_t count) { return make_list(items, count); }
int aclDestroyTensorList(const struct object *list) { return drop_list(list); }
struct object *aclCreateScalarList(const struct object *const *items, uint64_t count) { return make_list(items, count); }
int aclDestroyScalarList(const struct object *list) { return drop_list(list); }

/* ---- an operator's arguments as JSON: [{"tensor": 0}, 0.5, [{"tensor": 1}, {"tensor": 2}], null] ----------------- */

struct written {
  char *json;
  size_t length, room;
  struct tensor *tensors;
  int count;
};

static void put(struct written *w, const char *text) {
  size_t length = strlen(text);
  if (w->length + length + 1 > w->room) w->json = realloc(w->json, w->room = 2 * (w->room + length + 1));
  memcpy(w->json + w->length, text, length + 1);
  w->length += length;
}

static void describe(struct written *w, const struct object *o) {
  char text[64];
  if (!o) put(w, "null");
  else if (o->kind == NUMBER) put(w, o->text);
  else if (o->kind == TENSOR) {
    snprintf(text, sizeof text, "{\"tensor\":%d}", w->count);
    put(w, text);
    w->tensors = realloc(w->tensors, (size_t)(w->count + 1) * sizeof *w->tensors);
    w->tensors[w->count++] = o->tensor;
  } else {
    put(w, "[");
    for (uint64_t i = 0; i < o->count; i++) {
      if (i) put(w, ",");
      describe(w, o->items[i]);
    }
    put(w, "]");
  }
}

static int plan(const char *name, const struct object *const *arguments, int count, uint64_t *room, void **executor) {
  struct written w = {0};
  struct object all = {.kind = LIST, .count = (uint64_t)count, .items = arguments};
  describe(&w, &all);
  *room = 0;
  *executor = standin_operation(name, w.json, w.count, w.tensors);
  free(w.json);
  free(w.tensors);
  return *executor ? ACL_SUCCESS : ACL_ERROR_OP_NOT_FOUND;
}

static int launch(void *executor, aclrtStream stream) {
  return standin_enqueue(stream, executor);
}

#define LAUNCH(name)                                                          \
  int name(void *memory, uint64_t room, void *executor, aclrtStream stream) { \
    (void)memory;                                                             \
    (void)room;                                                               \
    return launch(executor, stream);                                          \
  }
#define A(n) const struct object *a##n
#define PLAN(name, parameters, ...)                                                    \
  int name##GetWorkspaceSize parameters {                                              \
    const struct object *given[] = {__VA_ARGS__};                                      \
    return plan(#name, given, (int)(sizeof given / sizeof *given), room, executor);    \
  }                                                                                    \
  LAUNCH(name)
#define END uint64_t *room, void **executor
#define TAKES2(name) PLAN(name, (A(0), A(1), END), a0, a1)
#define TAKES3(name) PLAN(name, (A(0), A(1), A(2), END), a0, a1, a2)
#define TAKES4(name) PLAN(name, (A(0), A(1), A(2), A(3), END), a0, a1, a2, a3)
#define TAKES5(name) PLAN(name, (A(0), A(1), A(2), A(3), A(4), END), a0, a1, a2, a3, a4)

TAKES4(aclnnAdd)
TAKES4(aclnnAdds)
TAKES3(aclnnInplaceAdd)
TAKES3(aclnnInplaceAdds)
TAKES3(aclnnMul)
TAKES3(aclnnMuls)
TAKES2(aclnnInplaceCopy)
TAKES2(aclnnInplaceMul)
TAKES2(aclnnInplaceMuls)
TAKES4(aclnnForeachAddList)
TAKES4(aclnnForeachAddListV2)
TAKES3(aclnnForeachAddScalar)
TAKES3(aclnnForeachAddScalarV2)
TAKES3(aclnnForeachAddScalarList)
TAKES3(aclnnForeachMulScalar)
TAKES3(aclnnForeachMulScalarV2)
TAKES3(aclnnForeachMulList)
TAKES3(aclnnForeachDivScalarV2)
TAKES3(aclnnForeachDivScalarList)
TAKES3(aclnnForeachDivList)
TAKES4(aclnnForeachLerpScalar)
TAKES5(aclnnForeachAddcmulScalar)
TAKES5(aclnnForeachAddcmulScalarV2)
TAKES5(aclnnForeachAddcdivScalarList)
TAKES2(aclnnForeachSqrt)
TAKES3(aclnnForeachNonFiniteCheckAndUnscale)

/* Some take numbers by value. */
static struct object number(double value) {
  struct object o = {.kind = NUMBER};
  write_number(o.text, sizeof o.text, value);
  return o;
}

/* The order is the one in which torch_npu 2.13.0 gives them. */
int aclnnAmpUpdateScaleGetWorkspaceSize(A(0), A(1), A(2), double growth, double backoff, int64_t steps, A(3), A(4), END) {
  struct object numbers[] = {number(growth), number(backoff), number((double)steps)};
  const struct object *given[] = {a0, a1, a2, &numbers[0], &numbers[1], &numbers[2], a3, a4};
  return plan("aclnnAmpUpdateScale", given, 8, room, executor);
}
LAUNCH(aclnnAmpUpdateScale)

int aclnnFlashAttentionScoreGetWorkspaceSize(A(0), A(1), A(2), A(3), A(4), A(5), A(6), A(7), double scale, double keep,
                                             int64_t before, int64_t after, int64_t heads, char *layout,
                                             int64_t precise, int64_t sparse, A(8), A(9), A(10), A(11), END) {
  (void)before;
  (void)after;
  (void)precise;
  struct object numbers[] = {number(scale), number(keep), number((double)heads), number((double)sparse)};
  struct object word = {.kind = NUMBER};
  snprintf(word.text, sizeof word.text, "\"%.16s\"", layout);
  const struct object *given[] = {a0,          a1,          a2,          a3,    a4,          a5, a6, a7,  &numbers[0],
                                  &numbers[1], &numbers[2], &numbers[3], &word, a8, a9, a10, a11};
  return plan("aclnnFlashAttentionScore", given, (int)(sizeof given / sizeof *given), room, executor);
}
LAUNCH(aclnnFlashAttentionScore)
