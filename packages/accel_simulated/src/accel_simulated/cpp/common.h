// What every part of the simulated device needs: its device type, its size, and small helpers.
//
// The device type is chosen when this is compiled: -DSIM=PrivateUse1 (mlu, sdaa, supa, any new vendor; the
// name is given in Python, once per process) or one that PyTorch knows by itself: HPU, MPS, XPU, CUDA.
#pragma once

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Stream.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <vector>

#ifndef SIM
#define SIM PrivateUse1
#endif
// Two steps, so that SIM is replaced by its value before it is pasted.
#define SIM_JOIN_(a, b) a##b
#define SIM_JOIN(a, b) SIM_JOIN_(a, b)
#define SIM_LIBRARY_(ns, key, m) TORCH_LIBRARY_IMPL(ns, key, m)
#define SIM_LIBRARY(ns, key, m) SIM_LIBRARY_(ns, key, m)

namespace simulated {

using c10::Device;
using c10::DeviceIndex;

constexpr auto kType = c10::DeviceType::SIM;
constexpr bool kIsMps = kType == c10::DeviceType::MPS;
// Metal as torch has it before 2.13: without statistics.
inline const bool old_metal = kIsMps && std::getenv("ACCEL_SIMULATE_OLD_METAL");
constexpr int kMaxDevices = 64;

// How many devices there are, which vendors' runtimes find when they are first asked: before that, a program may
// still change its visible-devices variables. Less may be there later (faults.h).
class DeviceCount {
 public:
  operator int() {
    int known = count_, none = -1;
    if (known < 0) {
      known = std::clamp(find(), 0, kMaxDevices);  // calls Python: no lock is held
      if (!count_.compare_exchange_strong(none, known)) known = none;
    }
    return known;
  }
  void operator=(int count) { count_ = count; }
  int (*find)() = nullptr;  // set by sim_init

 private:
  std::atomic<int> count_{-1};
};
inline DeviceCount device_count;
// Bytes of memory of each device.
inline std::atomic<size_t> memory_limits[kMaxDevices];

inline thread_local DeviceIndex selected_device = 0;

inline void check_index(int64_t index) {
  TORCH_CHECK(index >= 0 && index < device_count, "simulated device: invalid device ordinal ", index, ", there are ",
      int(device_count));
}

// The index that `device` means: its own, or the current one.
inline DeviceIndex index_of(Device device) {
  auto index = device.index() < 0 ? selected_device : device.index();
  check_index(index);
  return index;
}

inline bool is_here(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

}  // namespace simulated
