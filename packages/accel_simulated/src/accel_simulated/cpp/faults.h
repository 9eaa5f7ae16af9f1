// What goes wrong on request: an allocation, a kernel, the whole device, and how slow and how many devices are.
#pragma once

#include <pthread.h>

#include <chrono>
#include <thread>

#include "common.h"

namespace simulated {

// The numbers by which Python names them.
enum Fault { kOom, kKernel, kLost, kSlow, kCount, kFaults };

struct Request {
  std::atomic<int64_t> at{0};  // the how-manieth allocation or kernel from now on; 0 for none
  std::atomic<int64_t> value{0};
  std::atomic<int64_t> seen{0};

  // Counts one, and says whether it is the one that was meant.
  bool strikes() { return at && ++seen == at; }
  // The same, and all after it.
  bool holds() { return at && ++seen >= at; }
};

inline Request requests[kFaults];
inline std::atomic<bool> is_lost{false};

inline std::atomic<bool> is_forked{false};

// A process that was forked after its parent's first use has the parent's memory, and no threads for its streams:
// vendors' runtimes refuse it. What is asked for here first is not so.
inline void check_not_forked() {
  static const int followed = pthread_atfork(nullptr, nullptr, [] { is_forked = true; });
  TORCH_CHECK(!followed && !is_forked, "Cannot re-initialize ", c10::DeviceTypeName(kType, false),
      " in forked subprocess. To use ", c10::DeviceTypeName(kType, false),
      " with multiprocessing, you must use the 'spawn' start method");
}

inline void check_not_lost() {
  check_not_forked();
  TORCH_CHECK(!is_lost, "simulated device: the device is lost (requested); only a new process gets it back");
}

inline void check_allocation(DeviceIndex device, size_t size) {
  check_not_lost();
  TORCH_CHECK_WITH(OutOfMemoryError, !requests[kOom].strikes(), "simulated device ", int(device),
      " out of memory (requested): tried to allocate ", size, " bytes");
}

// A stream that is slow takes longer over whatever it is given next.
template <class Queue>
void delay(Queue& stream) {
  if (!requests[kSlow].holds()) return;
  auto microseconds = std::chrono::microseconds(requests[kSlow].value);
  stream.push([microseconds] { std::this_thread::sleep_for(microseconds); });
}

// Called for each kernel. What it does wrong shows when its stream is next waited for, as on a device.
template <class Queue>
void meet_faults(Queue& stream) {
  if (requests[kLost].strikes()) is_lost = true;
  check_not_lost();
  if (requests[kCount].strikes()) device_count = int(requests[kCount].value);
  delay(stream);
  if (requests[kKernel].strikes()) {
    auto number = requests[kKernel].at.load();
    stream.push([number] { TORCH_CHECK(false, "kernel ", number, " failed (requested)"); });
  }
}

}  // namespace simulated
