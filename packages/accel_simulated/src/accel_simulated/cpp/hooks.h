// What PyTorch asks of a device type outside its kernels. One class serves every type that we play.
#pragma once

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>

#include "guard.h"
#include "memory.h"

namespace simulated {

using HooksInterface = at::SIM_JOIN(SIM, HooksInterface);

// `virtual` without `override`: the function overrides PyTorch's where this type's interface has it.
struct Hooks final : HooksInterface {
  virtual bool SIM_JOIN(has, SIM)() const { return true; }
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }

  DeviceIndex deviceCount() const override { return DeviceIndex(device_count); }
  void setCurrentDevice(DeviceIndex device) const override {
    check_index(device);
    selected_device = device;
  }
  DeviceIndex getCurrentDevice() const override { return selected_device; }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    auto before = selected_device;
    if (device >= 0) setCurrentDevice(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  Device getDeviceFromPtr(void*) const override { return {kType, selected_device}; }
  virtual DeviceIndex current_device() const { return selected_device; }
  virtual void deviceSynchronize() const { Guard().synchronizeDevice(selected_device); }
  virtual void deviceSynchronize(DeviceIndex device) const { Guard().synchronizeDevice(device); }

  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? selected_device : device);
  }

  bool isPinnedPtr(const void* pointer) const override {
    return !plain && !kIsMps && PinnedMemory::get().holds(pointer);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    TORCH_CHECK_NOT_IMPLEMENTED(!plain, "the device has no pinned memory");
    return &PinnedMemory::get();
  }
  virtual at::Allocator* getMPSDeviceAllocator() const { return &device_memory(); }
  virtual void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const { grow(storage, size); }

  // What torch asks of CUDA's libraries: they may be preferred, as on a device; nothing is kept for them.
  virtual bool hasCuSOLVER() const { return true; }
  virtual bool hasCuBLASLt() const { return true; }
  virtual std::string showConfig() const { return "  - simulated: no library of the vendor's\n"; }
  virtual at::Allocator* getCUDADeviceAllocator() const { return &device_memory(); }
  virtual int64_t cuFFTGetPlanCacheMaxSize(DeviceIndex) const { return 0; }
  virtual void cuFFTSetPlanCacheMaxSize(DeviceIndex, int64_t) const {}
  virtual int64_t cuFFTGetPlanCacheSize(DeviceIndex) const { return 0; }
  virtual void cuFFTClearPlanCache(DeviceIndex) const {}

  // torch.mps is a thin layer over these.
  virtual bool isOnMacOSorNewer(unsigned, unsigned) const { return true; }
  virtual void commitStream() const {}
  virtual void emptyCache() const { DeviceMemory::get().emptyCache({0, 0}); }
  virtual size_t getCurrentAllocatedMemory() const { return stats().allocated_bytes[0].current; }
  virtual size_t getDriverAllocatedMemory() const { return stats().reserved_bytes[0].current; }
  virtual size_t getRecommendedMaxMemory() const { return memory_limits[0]; }
  virtual size_t getMaxBufferLength() const { return memory_limits[0]; }
  virtual void setMemoryFraction(double fraction) const {
    TORCH_CHECK(fraction >= 0 && fraction <= 2, "invalid percentage specified for memory fraction: ", fraction);
    DeviceMemory::get().set_fraction(0, fraction);
  }
  virtual void profilerStartTrace(const std::string&, bool) const {}
  virtual void profilerStopTrace() const {}
  virtual uint32_t acquireEvent(bool timing) const {
    events().push_back(new Event(timing));
    return uint32_t(events().size() - 1);
  }
  virtual void releaseEvent(uint32_t) const {}  // never freed: queued work may name it
  virtual void recordEvent(uint32_t event) const { events().at(event)->record(current_queue(selected_device)); }
  virtual void waitForEvent(uint32_t event) const { events().at(event)->block(current_queue(selected_device)); }
  virtual void synchronizeEvent(uint32_t event) const { events().at(event)->synchronize(); }
  virtual bool queryEvent(uint32_t event) const { return events().at(event)->query(); }
  virtual double elapsedTimeOfEvents(uint32_t start, uint32_t end) const {
    return events().at(start)->milliseconds_until(*events().at(end));
  }

 private:
  static std::vector<Event*>& events() {  // used under Python's lock
    static std::vector<Event*> made;
    return made;
  }
  static c10::CachingDeviceAllocator::DeviceStats stats() { return DeviceMemory::get().getDeviceStats(0); }
};

template <class Interface>
void register_hooks_as() {
  // The cast is the identity in the branch that is taken; in the others it only has to compile.
  auto make = [] { return std::unique_ptr<Interface>(reinterpret_cast<Interface*>(new Hooks)); };
  if constexpr (std::is_same_v<Interface, at::PrivateUse1HooksInterface>)
    at::RegisterPrivateUse1HooksInterface(make().release());
  else if constexpr (std::is_same_v<Interface, at::HPUHooksInterface>)
    at::HPUHooksRegistry()->Register("HPUHooks", [make](at::HPUHooksArgs) { return make(); });
  else if constexpr (std::is_same_v<Interface, at::CUDAHooksInterface>)
    at::CUDAHooksRegistry()->Register("CUDAHooks", [make](at::CUDAHooksArgs) { return make(); });
  else if constexpr (std::is_same_v<Interface, at::XPUHooksInterface>)
    at::XPUHooksRegistry()->Register("XPUHooks", [make] { return make(); });
  else
    at::MPSHooksRegistry()->Register("MPSHooks", [make] { return make(); });
}

// The hooks of built-in device types are looked up once and kept: ours must be there before the first
// question. PrivateUse1's are registered when the device is given its name.
inline const bool registered_early =
    kType != c10::DeviceType::PrivateUse1 && (register_hooks_as<HooksInterface>(), true);

}  // namespace simulated
