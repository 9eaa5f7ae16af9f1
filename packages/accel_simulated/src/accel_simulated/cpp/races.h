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
  std::lock_guard<std::mutex> lock(mutex);
  host.learn(event);
}
inline void host_waited_for(const void* stream) {
  if (!looked_for) return;
  std::lock_guard<std::mutex> lock(mutex);
  host.learn(streams[stream]);
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
