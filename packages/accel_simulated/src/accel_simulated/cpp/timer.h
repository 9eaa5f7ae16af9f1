// What DistributedDataParallel asks for the times in its log; a build for the device has one of its own.
#pragma once

#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "common.h"

namespace simulated {

// By the host's clock: kernels run when they are called.
class Timer final : public c10d::Timer {
 public:
  explicit Timer(Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto from = getTimestamp(start), to = getTimestamp(end);
    if (!from || !to || *to < *from) return std::nullopt;
    return *to - *from;
  }
};

}  // namespace simulated

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, simulated::kType, simulated::Timer)
}
