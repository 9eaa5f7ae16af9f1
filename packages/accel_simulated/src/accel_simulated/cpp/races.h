// Who uses what another stream wrote, while nothing says which comes first. With ACCEL_SIMULATE_RACE=1.
//
// A kernel runs in its caller's thread, so all that a stream was given is done at once, and a missing wait harms
// nobody. Here each stream, each event and the host know how far they have seen each stream come (vector clocks), and
// what is not known to be done counts as not done.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/record_function.h>

#include "common.h"

namespace simulated::races {

// Gaudi orders dependent work across its streams by itself.
inline const bool looked_for = [] {
  auto* asked = std::getenv("ACCEL_SIMULATE_RACE");
  return kType != c10::DeviceType::HPU && asked && std::string(asked) == "1";
}();

// How many of each stream's accesses are known to be done. Streams go by the address of their queue.
struct Clock {
  std::unordered_map<const void*, uint64_t> seen;

  void learn(const Clock& other) {
    for (auto& [stream, count] : other.seen) seen[stream] = std::max(seen[stream], count);
  }
};

// Bytes of a block of the device's memory.
struct Range {
  const void* block;
  size_t from, to;
  bool holds(const Range& other) const { return from <= other.from && other.to <= to; }
  bool meets(const Range& other) const { return from < other.to && other.from < to; }
};

struct Access {
  const void* stream;
  uint64_t number;
  Range range;
  std::string by;
};

struct Block {
  const void* made_on = nullptr;
  std::vector<Access> writes, reads;
};

inline std::mutex mutex;
inline Clock host;
inline std::unordered_map<const void*, Clock> streams;
inline std::unordered_map<const void*, Block> blocks;

// A copy to pinned memory which the host has not waited for. The memory gets its value when the host has.
struct LateCopy {
  const void* stream;
  uint64_t number;
  at::Tensor target, value;
  bool named = false;
};
inline std::vector<LateCopy> late_copies;
inline std::atomic<bool> any_late{false};

inline Range bytes_of_host(const at::Tensor& tensor) {
  auto from = reinterpret_cast<size_t>(tensor.const_data_ptr());
  size_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += size_t((tensor.size(i) - 1) * tensor.stride(i));
  return {nullptr, from, tensor.numel() ? from + (last + 1) * tensor.itemsize() : from};
}

// Take the late copies that `which` chooses out of the list.
template <class F>
std::vector<LateCopy> taken(F which) {
  std::vector<LateCopy> chosen;
  std::lock_guard<std::mutex> lock(mutex);
  auto rest = std::stable_partition(late_copies.begin(), late_copies.end(), [&](auto& each) { return !which(each); });
  chosen.assign(rest, late_copies.end());
  late_copies.erase(rest, late_copies.end());
  any_late = !late_copies.empty();
  return chosen;
}

inline void land(const std::vector<LateCopy>& copies) {
  at::AutoDispatchBelowADInplaceOrView below;
  at::NoGradGuard no_grad;
  for (auto& copy : copies) copy.target.copy_(copy.value);
}

// `stream` will write `value`, which is to come to `target`. A later copy to the same memory replaces this one.
inline void postpone(const void* stream, const at::Tensor& target, const at::Tensor& value) {
  taken([&, range = bytes_of_host(target)](auto& each) { return range.holds(bytes_of_host(each.target)); });
  std::lock_guard<std::mutex> lock(mutex);
  late_copies.push_back({stream, ++streams[stream].seen[stream], target, value});
  any_late = true;
}

// The late copies to the memory of `tensor` that `stream` knows to be done before what it is given now.
inline std::vector<LateCopy> done_before(const void* stream, const at::Tensor& tensor) {
  if (!any_late) return {};
  return taken([&, range = bytes_of_host(tensor)](auto& each) {
    return range.meets(bytes_of_host(each.target)) && streams[stream].seen[each.stream] >= each.number;
  });
}

// Does `by` read memory to which a copy is late? Warn once for each copy.
inline bool reads_too_early(const std::string& by, const at::Tensor& tensor) {
  bool found = false, named = true;
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto& each : late_copies) {
      if (!bytes_of_host(tensor).meets(bytes_of_host(each.target))) continue;
      found = true;
      named = std::exchange(each.named, true) && named;
    }
  }
  if (!named)
    TORCH_WARN("simulated device: ", by, " reads pinned memory, and nobody waited for the copy to it "
        "(ACCEL_SIMULATE_RACE=1). Synchronize the stream, or an event after the copy, before the host reads.");
  return found;
}

// Not the values of its arguments, but their shape.
inline bool reads_nothing(const std::string& name) {
  auto begins = [&](const char* with) { return name.rfind(with, 0) == 0; };
  return begins("aten::new_") || begins("aten::is_") || name.find("_like") != std::string::npos;
}

// Called before each operator.
inline std::unique_ptr<at::ObserverContext> look_at_host_reads(const at::RecordFunction& function) {
  if (!any_late) return nullptr;
  auto schema = function.operator_schema();
  auto inputs = function.inputs();
  if (!schema || schema->arguments().size() != inputs.size()) return nullptr;
  std::string name = function.name();
  auto& returns = schema->returns();
  bool is_view = !returns.empty() && returns[0].alias_info() && !returns[0].alias_info()->isWrite();
  if (is_view && name.rfind("aten::resolve_", 0)) return nullptr;  // resolve_conj begins `tolist` and `numpy`
  if (reads_nothing(name)) return nullptr;
  bool only_writes = name == "aten::copy_" || name == "aten::fill_" || name == "aten::zero_";
  for (auto& input : inputs)
    if (input.isTensor() && is_here(input.toTensor())) return nullptr;  // a stream's, not the host's
  for (size_t i = only_writes ? 1 : 0; i < inputs.size(); ++i)
    if (inputs[i].isTensor() && inputs[i].toTensor().defined() && inputs[i].toTensor().has_storage())
      reads_too_early(name, inputs[i].toTensor());
  return nullptr;
}

inline void look_at_the_host() {
  if (looked_for)
    at::addGlobalCallback(
        at::RecordFunctionCallback(&look_at_host_reads).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

inline void land_what_host_has_seen() {
  if (any_late) land(taken([](auto& each) { return host.seen[each.stream] >= each.number; }));
}

// The event stands for all that the stream was given so far.
inline void recorded(Clock& event, const void* stream) {
  if (!looked_for) return;
  std::lock_guard<std::mutex> lock(mutex);
  event = streams[stream];
}
inline void stream_waited(const void* stream, const Clock& event) {
  if (!looked_for) return;
  std::lock_guard<std::mutex> lock(mutex);
  streams[stream].learn(event);
}
inline void met(const void* one, const void* other) {
  if (!looked_for || one == other) return;
  std::lock_guard<std::mutex> lock(mutex);
  streams[one].learn(streams[other]);
  streams[other].learn(streams[one]);
}
inline void host_waited(const Clock& event) {
  if (!looked_for) return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    host.learn(event);
  }
  land_what_host_has_seen();
}
inline void host_waited_for(const void* stream) {
  if (!looked_for) return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    host.learn(streams[stream]);
  }
  land_what_host_has_seen();
}

// A block is handed out. Of what was given back on the stream that made it others' accesses may go on: it takes
// `record_stream` to keep it from them.
inline void made(const void* block, const void* stream) {
  if (!looked_for) return;
  std::lock_guard<std::mutex> lock(mutex);
  auto& known = blocks[block];
  if (known.made_on != stream) known = {};  // a device keeps memory for each stream by itself
  known.made_on = stream;
}
inline void forget(const void* block) {
  if (!looked_for) return;
  std::lock_guard<std::mutex> lock(mutex);
  blocks.erase(block);
}

// `by` reads or writes `range` on `stream`. Is it too early: was it written on another one, which nobody waited for?
inline bool too_early(const void* stream, const Range& range, bool writes, const std::string& by) {
  std::string before;
  bool read_before = false;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto& now = streams[stream];
    now.learn(host);
    auto number = ++now.seen[stream];
    auto& block = blocks[range.block];
    auto is_open = [&](const Access& each) { return now.seen[each.stream] < each.number && each.range.meets(range); };
    auto is_over = [&](const Access& each) { return now.seen[each.stream] >= each.number && range.holds(each.range); };
    auto open = [&](const std::vector<Access>& those) {
      auto found = std::find_if(those.begin(), those.end(), is_open);
      return found == those.end() ? std::string() : found->by;
    };
    auto drop = [&](std::vector<Access>& those) {
      those.erase(std::remove_if(those.begin(), those.end(), is_over), those.end());
    };
    before = open(block.writes);
    if (writes && before.empty()) read_before = !(before = open(block.reads)).empty();
    drop(block.reads);
    if (writes) drop(block.writes);
    (writes ? block.writes : block.reads).push_back({stream, number, range, by});
  }
  if (before.empty()) return false;
  TORCH_WARN("simulated device: ", by, writes ? " writes what " : " reads what ", before,
      read_before ? " reads" : " wrote",
      " on another stream, and nothing says which comes first (ACCEL_SIMULATE_RACE=1). Put wait_stream, wait_event or "
      "synchronize between them", read_before ? ", or record_stream before the tensor goes." : ".");
  return !read_before;
}

}  // namespace simulated::races
