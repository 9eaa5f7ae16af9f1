/* Devices, memory, versions and parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

static __thread char last_error[256];
__thread int standin_current = -1;
pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;

int standin_fail(int code, const char *message) {
  snprintf(last_error, sizeof last_error, "%s", message);
  return code;
}

const char *aclGetRecentErrMsg(void) { return last_error; }

long standin_number(const char *name, long otherwise) {
  const char *value = getenv(name);
  return value && *value ? atol(value) : otherwise;
}

void standin_trace(const char *name) {
  if (standin_number("STANDIN_TRACE", 0)) fprintf(stderr, "[stand-in] %s\n", name);
}

uint64_t standin_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- devices --------------------------------------------------------------------------------------------- */

static int contexts[MOST_DEVICES]; /* the address is the context, the value whether the device was started */
static size_t used[MOST_DEVICES];

static int installed(void) {
  long n = standin_number("STANDIN_DEVICES", 2);
  return n < 0 ? 0 : n > MOST_DEVICES ? MOST_DEVICES : (int)n;
}

/* The runtime's rule: ids by comma, ascending; anything else ends the list. */
int standin_device_count(void) {
  const char *list = getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (!list) return installed();
  int count = 0;
  long before = -1;
  while (*list >= '0' && *list <= '9') {
    char *end;
    long id = strtol(list, &end, 10);
    if (id <= before || id >= installed()) return id <= before ? 0 : count;
    before = id;
    count++;
    if (*end != ',') break;
    list = end + 1;
  }
  return count;
}

static bool exists(int device) { return device >= 0 && device < standin_device_count(); }

/* As the driver counts: every card, whatever is visible. */
int drvGetDevNum(uint32_t *count) {
  *count = (uint32_t)installed();
  return 0;
}

aclError aclInit(const char *config) {
  (void)config;
  return standin_find_kernels();
}
aclError aclFinalize(void) { return ACL_SUCCESS; }

aclError aclrtGetDeviceCount(uint32_t *count) {
  *count = (uint32_t)standin_device_count();
  return *count ? ACL_SUCCESS : standin_fail(ACL_ERROR_RT_NO_DEVICE, "no device");
}

aclError aclrtSetDevice(int32_t device) {
  if (!exists(device)) return standin_fail(ACL_ERROR_RT_INVALID_DEVICEID, "invalid device id");
  standin_current = device;
  contexts[device] = 1;
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t device) {
  if (!exists(device)) return standin_fail(ACL_ERROR_RT_INVALID_DEVICEID, "invalid device id");
  contexts[device] = 0;
  return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t *device) {
  if (standin_current < 0) return standin_fail(ACL_ERROR_RT_CONTEXT_NULL, "no device was selected");
  *device = standin_current;
  return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(aclrtContext *context) {
  if (standin_current < 0) return standin_fail(ACL_ERROR_RT_CONTEXT_NULL, "no device was selected");
  *context = &contexts[standin_current];
  return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  ptrdiff_t device = (int *)context - contexts;
  if (!context || !exists((int)device)) return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "not a context");
  standin_current = (int)device;
  return ACL_SUCCESS;
}

aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
  if (!exists(device)) return standin_fail(ACL_ERROR_RT_INVALID_DEVICEID, "invalid device id");
  if (flags) *flags = 0;
  *active = contexts[device];
  return ACL_SUCCESS;
}

const char *aclrtGetSocName(void) {
  const char *name = getenv("STANDIN_SOC");
  return name ? name : "Ascend910B1";
}

aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
  *can = device != peer;
  return ACL_SUCCESS;
}
aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) {
  (void)peer;
  (void)flags;
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetBareTgid(int32_t *pid) {
  *pid = (int32_t)getpid();
  return ACL_SUCCESS;
}

/* 24 AI cores, 48 vector units and 192 MiB of second-level cache: an Ascend 910B1. */
aclError aclGetDeviceCapability(uint32_t device, aclDeviceInfo what, int64_t *value) {
  (void)device;
  *value = what == ACL_DEVICE_INFO_AI_CORE_NUM ? 24 : what == ACL_DEVICE_INFO_VECTOR_CORE_NUM ? 48 : 192 << 20;
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid *uuid) {
  if (!exists(device)) return standin_fail(ACL_ERROR_RT_INVALID_DEVICEID, "invalid device id");
  for (int i = 0; i < 16; i++) uuid->bytes[i] = (char)(16 * (device + 1) + i);
  return ACL_SUCCESS;
}

aclError aclrtGetDeviceUtilizationRate(int32_t device, aclrtUtilizationInfo *info) {
  (void)device;
  memset(info, 0, sizeof *info);
  info->cubeUtilization = info->vectorUtilization = info->aicpuUtilization = info->memoryUtilization = 7;
  return ACL_SUCCESS;
}

/* ---- memory: a header in front of every block tells its size and device, -1 for the host ------------------- */

enum { PAGE = 512, LIVE = 0x0a5ce0d };
struct block {
  size_t size;
  int device, state;
};

static size_t capacity(void) { return (size_t)standin_number("STANDIN_MEMORY_MB", 1024) << 20; }

static int allocate(void **result, size_t size, int device) {
  if (device >= 0) {
    pthread_mutex_lock(&standin_lock);
    bool fits = used[device] + size <= capacity();
    if (fits) used[device] += size;
    pthread_mutex_unlock(&standin_lock);
    if (!fits) return standin_fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "the device's memory is used up");
  }
  void *memory;
  if (posix_memalign(&memory, PAGE, size + PAGE)) return standin_fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "host memory");
  *(struct block *)memory = (struct block){size, device, LIVE};
  *result = (char *)memory + PAGE;
  return ACL_SUCCESS;
}

static int release(void *pointer) {
  struct block *block = (struct block *)((char *)pointer - PAGE);
  if (!pointer || block->state != LIVE) return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "not an allocated block");
  if (block->device >= 0) {
    pthread_mutex_lock(&standin_lock);
    used[block->device] -= block->size;
    pthread_mutex_unlock(&standin_lock);
  }
  block->state = 0;
  free(block);
  return ACL_SUCCESS;
}

aclError aclrtMalloc(void **pointer, size_t size, aclrtMemMallocPolicy policy) {
  (void)policy;
  if (standin_current < 0) return standin_fail(ACL_ERROR_RT_CONTEXT_NULL, "no device was selected");
  return allocate(pointer, size, standin_current);
}
aclError aclrtMallocAlign32(void **pointer, size_t size, aclrtMemMallocPolicy policy) {
  return aclrtMalloc(pointer, size, policy);
}
aclError aclrtFree(void *pointer) { return release(pointer); }
aclError aclrtMallocHost(void **pointer, size_t size) { return allocate(pointer, size, -1); }
aclError aclrtMallocHostWithCfg(void **pointer, uint64_t size, aclrtMallocConfig *config) {
  (void)config;
  return allocate(pointer, size, -1);
}
aclError aclrtFreeHost(void *pointer) { return release(pointer); }

aclError aclrtGetMemInfo(aclrtMemAttr kind, size_t *available, size_t *total) {
  (void)kind;
  if (standin_current < 0) return standin_fail(ACL_ERROR_RT_CONTEXT_NULL, "no device was selected");
  pthread_mutex_lock(&standin_lock);
  *total = capacity();
  *available = *total - used[standin_current];
  pthread_mutex_unlock(&standin_lock);
  return ACL_SUCCESS;
}

aclError aclrtMemset(void *to, size_t room, int32_t value, size_t count) {
  if (count > room) return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "more than there is room for");
  memset(to, value, count);
  return ACL_SUCCESS;
}

aclError aclrtMemcpy(void *to, size_t room, const void *from, size_t count, aclrtMemcpyKind kind) {
  (void)kind;
  if (count > room) return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "more than there is room for");
  memmove(to, from, count);
  return ACL_SUCCESS;
}

/* Pinned ranges of the user's own memory. */
enum { MOST_RANGES = 64 };
static void *ranges[MOST_RANGES];

static int find_range(void *pointer) {
  for (int i = 0; i < MOST_RANGES; i++)
    if (ranges[i] == pointer) return i;
  return -1;
}

aclError aclrtHostRegisterV2(void *pointer, uint64_t size, uint32_t flag) {
  if (!pointer || !size || (flag & ACL_HOST_REG_MAPPED && (uintptr_t)pointer % 4096))
    return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "a mapped range starts at a multiple of 4096");
  if (find_range(pointer) >= 0) return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "the range is registered");
  int place = find_range(NULL);
  if (place < 0) return standin_fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "too many ranges");
  ranges[place] = pointer;
  return ACL_SUCCESS;
}

aclError aclrtHostUnregister(void *pointer) {
  int place = pointer ? find_range(pointer) : -1;
  if (place < 0) return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "the range is not registered");
  ranges[place] = NULL;
  return ACL_SUCCESS;
}

/* ---- versions and parameters ------------------------------------------------------------------------------ */

static const char *version(void) {
  const char *value = getenv("STANDIN_CANN");
  return value ? value : "8.3.0";
}

aclError aclsysGetCANNVersion(aclCANNPackageName package, aclCANNPackageVersion *result) {
  (void)package;
  memset(result, 0, sizeof *result);
  snprintf(result->version, sizeof result->version, "%s", version());
  sscanf(version(), "%63[^.].%63[^.].%63s", result->majorVersion, result->minorVersion, result->releaseVersion);
  return ACL_SUCCESS;
}

aclError aclsysGetVersionStr(char *package, char *result) {
  (void)package;
  strcpy(result, version());
  return ACL_SUCCESS;
}

enum { MOST_OPTIONS = 64 };
static int64_t options[2][MOST_OPTIONS];

static int option(int table, int key, const int64_t *set, int64_t *get) {
  if (key < 0 || key >= MOST_OPTIONS) return standin_fail(ACL_ERROR_RT_PARAM_INVALID, "no such option");
  if (set) options[table][key] = *set;
  if (get) *get = options[table][key];
  return ACL_SUCCESS;
}

aclError aclrtSetSysParamOpt(aclSysParamOpt key, int64_t value) { return option(0, (int)key, &value, NULL); }
aclError aclrtGetSysParamOpt(aclSysParamOpt key, int64_t *value) { return option(0, (int)key, NULL, value); }
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt key, int64_t value) { return option(1, (int)key, &value, NULL); }
aclError aclrtCtxGetSysParamOpt(aclSysParamOpt key, int64_t *value) { return option(1, (int)key, NULL, value); }
