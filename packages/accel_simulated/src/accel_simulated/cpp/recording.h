// What a capturing stream was asked to do, to be done again at each replay.
//
// Kernels need their results' shapes at once, so work runs while it is captured; when the capture ends,
// all that it wrote to is put back, so that nothing seems to have happened, as on a real device.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "common.h"
#include "races.h"
#include "random.h"

namespace simulated {

class Recording {
 public:
  // Keep what `storage` holds, once, before a captured kernel writes to it.
  void save(const c10::Storage& storage) {
    auto [place, is_new] = memory_.try_emplace(storage.unsafeGetStorageImpl());
    if (!is_new) return;
    auto* bytes = static_cast<const char*>(storage.data());
    place->second = {storage, std::string(bytes ? bytes : "", bytes ? storage.nbytes() : 0)};
  }

  // Keep the generator's state, once: capturing draws no numbers.
  void save(Generator* generator) {
    auto kept = c10::intrusive_ptr<Generator>::reclaim_copy(generator);
    generators_.try_emplace(generator, kept, generator->get_state());
  }

  void add(std::string name, std::function<void()> step) { steps_.push_back({std::move(name), std::move(step)}); }

  // A step reads or writes this memory at each replay (races.h).
  void use(const races::Range& range, bool writes, const std::string& by) { uses_.push_back({range, writes, by}); }
  void note_replay(const void* stream) const {
    for (auto& each : uses_) races::too_early(stream, each.range, each.writes, each.by);
  }

  // The capture is over: undo what capturing it did.
  void restore() {
    for (auto& [key, kept] : memory_) {
      auto& [storage, bytes] = kept;
      std::memcpy(storage.mutable_data(), bytes.data(), std::min(bytes.size(), storage.nbytes()));
    }
    for (auto& [key, kept] : generators_) {
      auto& [generator, state] = kept;
      generator->set_state(*state);
    }
    memory_.clear();
    generators_.clear();
  }

  void replay() const {
    at::AutoDispatchBelowADInplaceOrView below;  // this runs on a stream's thread, which starts with defaults
    at::NoGradGuard no_grad;
    for (auto& step : steps_) step.run();
  }

  std::string describe() const {
    std::string text = "digraph simulated {\n";
    for (size_t i = 0; i < steps_.size(); ++i) {
      text += "  n" + std::to_string(i) + " [label=\"" + steps_[i].name + "\"];\n";
      if (i) text += "  n" + std::to_string(i - 1) + " -> n" + std::to_string(i) + ";\n";
    }
    return text + "}\n";
  }

  // A step lends numbers to the host's default generator, so no other thread may draw meanwhile.
  bool touches_host_generator = false;

 private:
  struct Step {
    std::string name;
    std::function<void()> run;
  };
  struct Use {
    races::Range range;
    bool writes;
    std::string by;
  };
  std::vector<Step> steps_;
  std::vector<Use> uses_;
  std::map<c10::StorageImpl*, std::pair<c10::Storage, std::string>> memory_;
  using State = c10::intrusive_ptr<c10::TensorImpl>;
  std::map<Generator*, std::pair<c10::intrusive_ptr<Generator>, State>> generators_;
};

}  // namespace simulated
