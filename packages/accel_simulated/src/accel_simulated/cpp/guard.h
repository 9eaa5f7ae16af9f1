// What torch.accelerator, torch.Stream, torch.Event and every device guard in PyTorch call.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "streams.h"

namespace simulated {

// A device that has less than a GPU: one queue, and none of what follows. Set before the device is there.
inline bool plain = false;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  Device getDevice() const override { return {kType, selected_device}; }
  void setDevice(Device device) const override {
    check_index(device.index());
    selected_device = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override { selected_device = device.index(); }
  Device exchangeDevice(Device device) const override {
    auto before = getDevice();
    if (device.index() >= 0) setDevice(device);
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return DeviceIndex(device_count); }

  static c10::Stream stream(DeviceIndex device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, Device(kType, device), id);
  }
  c10::Stream getStream(Device device) const override {
    auto index = index_of(device);
    return stream(index, current_stream_id[index]);
  }
  c10::Stream getDefaultStream(Device device) const override { return stream(index_of(device), 0); }
  // Metal has one queue. torch gives it whatever is asked for (2.13, include/ATen/mps/MPSGuardImpl.h), and can
  // neither wait for it nor ask it: that the interface's own functions refuse.
  c10::Stream getNewStream(Device device, int) const override {
    if (kIsMps) return getDefaultStream(device);
    TORCH_CHECK(!plain, "Backend doesn't support create a new Stream.");
    auto index = index_of(device);
    return stream(index, next_stream(index));
  }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto before = getStream(stream.device());
    TORCH_CHECK(!plain || stream.id() == 0, "Backend doesn't support streams.");
    current_stream_id[stream.device_index()] = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return &queue(stream); }
  bool isStreamCapturing(const c10::Stream& stream) const override { return bool(queue(stream).capture); }
  bool queryStream(const c10::Stream& stream) const override {
    TORCH_CHECK(!plain && !kIsMps, "Backend doesn't support querying streams.");
    auto& asked = queue(stream);
    if (!asked.idle()) return false;
    races::host_waited_for(&asked);
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    TORCH_CHECK(!plain && !kIsMps, "Backend doesn't support synchronizing streams.");
    check_not_capturing(queue(stream), "waiting for a stream");
    wait_on_host(queue(stream));
  }
  void synchronizeDevice(DeviceIndex device) const override {
    for (auto* queue : queues_of(device)) check_not_capturing(*queue, "waiting for the device");
    for (auto* queue : queues_of(device)) wait_on_host(*queue);
  }

  void record(void** event, const c10::Stream& stream, DeviceIndex device, c10::EventFlag flag) const override {
    TORCH_CHECK(!plain, "Backend doesn't support events.");
    TORCH_CHECK(device == -1 || device == stream.device_index(), "event and stream are on different devices");
    if (!*event) *event = new Event(flag == c10::EventFlag::BACKEND_DEFAULT);
    static_cast<Event*>(*event)->record(queue(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) static_cast<Event*>(event)->block(queue(stream));
  }
  bool queryEvent(void* event) const override { return !event || static_cast<Event*>(event)->query(); }
  void synchronizeEvent(void* event) const override {
    if (event) static_cast<Event*>(event)->synchronize();
  }
  void destroyEvent(void*, DeviceIndex) const noexcept override {}  // never freed: queued work may name it
  double elapsedTime(void* start, void* end, DeviceIndex) const override {
    TORCH_CHECK(start && end, "both events must be recorded before calculating elapsed time");
    return static_cast<Event*>(start)->milliseconds_until(*static_cast<Event*>(end));
  }
};
C10_REGISTER_GUARD_IMPL(SIM, Guard)

}  // namespace simulated
