// What torch's profiler asks for a device's times where the vendor's tracing library (CUPTI) is missing: an event
// before and after each operator. Torch's own default raises, and prints a C++ stack for each.
#pragma once

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "streams.h"

namespace simulated {

struct ProfilerStubs final : torch::profiler::impl::ProfilerStubs {
  using Held = torch::profiler::impl::ProfilerVoidEventStub;

  void record(DeviceIndex* device, Held* event, int64_t* cpu_ns) const override {
    if (device) *device = selected_device;
    if (cpu_ns) *cpu_ns = c10::getTime();
    auto& stream = current_queue(selected_device);
    if (stream.capture) return;
    auto made = std::make_shared<Event>(true);
    made->record(stream);
    stream.push([made] {});  // a profile may be dropped before the stream comes here
    *event = made;
  }
  float elapsed(const Held* from, const Held* to) const override {
    auto &start = *static_cast<Event*>(from->get()), &end = *static_cast<Event*>(to->get());
    start.synchronize();
    end.synchronize();
    return float(start.milliseconds_until(end) * 1000);  // in microseconds
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (int index = 0; index < device_count; ++index) op(index);
  }
  void synchronize() const override { current_queue(selected_device).synchronize(); }
};

inline void serve_profiler() {
  static ProfilerStubs stubs;
  if constexpr (kType == c10::DeviceType::CUDA) torch::profiler::impl::registerCUDAMethods(&stubs);
  if constexpr (kType == c10::DeviceType::PrivateUse1) torch::profiler::impl::registerPrivateUse1Methods(&stubs);
}

}  // namespace simulated
