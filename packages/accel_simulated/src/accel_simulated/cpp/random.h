// One generator a device: 16 bytes of state (seed and offset), as CUDA and those who follow it have.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include "common.h"

namespace simulated {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(DeviceIndex index)
      : GeneratorImpl(Device(kType, index), c10::DispatchKeySet(c10::DispatchKey::SIM)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({2 * sizeof(uint64_t)}, at::kByte);
    auto* bytes = static_cast<uint64_t*>(state.mutable_data_ptr());
    bytes[0] = seed_;
    bytes[1] = offset_;
    return state.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 16 && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_cpu(),
        "RNG state must be a 16-byte CPU tensor");
    auto* bytes = static_cast<const uint64_t*>(state.data());
    seed_ = bytes[0];
    offset_ = bytes[1];
  }

  // A CPU generator for one kernel; the next call gives another.
  at::Generator draw() {
    uint64_t z = seed_ + (offset_ += 4) * 0x9e3779b97f4a7c15ull;  // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return at::detail::createCPUGenerator(z ^ (z >> 31));
  }

 private:
  GeneratorImpl* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

inline const at::Generator& default_generator(DeviceIndex index) {
  static auto* generators = [] {
    auto* made = new std::vector<at::Generator>;
    for (int i = 0; i < kMaxDevices; ++i) made->push_back(at::make_generator<Generator>(DeviceIndex(i)));
    return made;
  }();
  if (index < 0) index = selected_device;
  check_index(index);
  return (*generators)[index];
}

// Kernels without a generator draw from the host's: a run can then be compared with one on CPU, bit for bit.
inline bool draw_from_host = false;

inline Generator* as_simulated(const at::Generator& generator) {
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl());
}

// Lends a CPU generator's numbers to kernels that draw from the default one, having no argument for it.
class LentToDefault {
 public:
  explicit LentToDefault(const at::Generator& lent) : saved_(theirs().get_state()) {
    theirs().set_state(lent.get_state());
  }
  ~LentToDefault() { theirs().set_state(saved_); }
  LentToDefault(const LentToDefault&) = delete;
  LentToDefault& operator=(const LentToDefault&) = delete;

 private:
  static at::Generator& theirs() { return const_cast<at::Generator&>(at::detail::getDefaultCPUGenerator()); }
  at::Tensor saved_;
};

}  // namespace simulated
