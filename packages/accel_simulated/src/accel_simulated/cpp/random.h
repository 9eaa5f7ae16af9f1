// One generator a device: 16 bytes of state (seed and offset), as CUDA and those who follow it have.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <map>

#include "common.h"

namespace simulated {

// Kernels draw as the CPU's do: a run can then be compared with one on the CPU, bit for bit.
inline bool draw_from_host = false;

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(DeviceIndex index, bool is_default = false)
      : GeneratorImpl(Device(kType, index), c10::DispatchKeySet(c10::DispatchKey::SIM)), is_default_(is_default) {
    set_current_seed(c10::default_rng_seed_val);
  }

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
    if (draw_from_host) as_host_ = at::detail::createCPUGenerator(seed);
  }
  void set_offset(uint64_t offset) override { go_to(seed_, offset); }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    if (as_host_.defined()) {
      if (seen_.size() >= kSeen) seen_.erase(seen_.begin());
      seen_.insert_or_assign({seed_, offset_}, as_host_.clone());
    }
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
    go_to(bytes[0], bytes[1]);
  }

  // Does a kernel draw from the host's own default generator? Until somebody numbers this one's draws, as DTensor does:
  // that also puts the host's generator back after each draw.
  bool leaves_it_to_host() const { return draw_from_host && is_default_ && offset_ == 0; }

  // A CPU generator for one kernel; the next call gives another, or one that has gone on.
  at::Generator draw() {
    offset_ += 4;
    if (as_host_.defined() && !is_default_) return as_host_;
    uint64_t z = seed_ + offset_ * 0x9e3779b97f4a7c15ull;  // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return at::detail::createCPUGenerator(z ^ (z >> 31));
  }

 private:
  static constexpr size_t kSeen = 64;

  GeneratorImpl* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    copy->as_host_ = as_host_.defined() ? as_host_.clone() : at::Generator();
    copy->seen_ = seen_;
    return copy;
  }

  // As the host's at the start and where it was when its state was asked for; elsewhere the numbers are its own.
  void go_to(uint64_t seed, uint64_t offset) {
    if (offset == 0) return set_current_seed(seed);
    if (seed == seed_ && offset == offset_) return;
    auto seen = seen_.find({seed, offset});
    as_host_ = seen == seen_.end() ? at::Generator() : seen->second.clone();
    seed_ = seed;
    offset_ = offset;
  }

  const bool is_default_;
  uint64_t seed_ = 0;
  uint64_t offset_ = 0;
  at::Generator as_host_;  // draws what a CPU generator of this seed would; undefined where nobody asked for that
  mutable std::map<std::pair<uint64_t, uint64_t>, at::Generator> seen_;
};

inline const at::Generator& default_generator(DeviceIndex index) {
  static auto* generators = [] {
    auto* made = new std::vector<at::Generator>;
    for (int i = 0; i < kMaxDevices; ++i) made->push_back(at::make_generator<Generator>(DeviceIndex(i), true));
    return made;
  }();
  if (index < 0) index = selected_device;
  check_index(index);
  return (*generators)[index];
}

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
