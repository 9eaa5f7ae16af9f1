// Streams, which are threads that take work in order, and events, which are marks in such a queue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "common.h"
#include "faults.h"
#include "races.h"
#include "recording.h"

namespace simulated {

// Is this a stream's thread? It waits for no stream: that may be itself, or one that waits for it.
inline thread_local bool is_stream_thread = false;

class Queue {
 public:
  Queue() {
    std::thread([this] { run(); }).detach();
  }

  void push(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    work_.push_back(std::move(work));
    ++unfinished_;
    changed_.notify_all();
  }

  bool idle() const { return unfinished_ == 0; }

  void drain() noexcept {
    if (idle()) return;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return idle(); });
  }

  // Wait, and raise what went wrong meanwhile: work has no caller of its own to tell.
  void synchronize() {
    check_not_lost();
    drain();
    if (!failed_) return;
    failed_ = false;
    std::string failure;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      failure.swap(failure_);
    }
    TORCH_CHECK(failure.empty(), "simulated device: asynchronous work failed: ", failure);
  }

  // The capture that this stream is part of. Only the capturing thread writes it.
  std::shared_ptr<Recording> capture;

 private:
  void run() {
    is_stream_thread = true;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !work_.empty(); });
      auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      std::string failure = attempt(work);
      work = nullptr;  // what it holds is freed here, not under the lock
      lock.lock();
      if (failure_.empty() && !failure.empty()) {
        failure_ = failure;
        failed_ = true;
      }
      --unfinished_;
      changed_.notify_all();
    }
  }

  static std::string attempt(const std::function<void()>& work) {
    try {
      work();
      return {};
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::string failure_;
  // What every kernel asks first; written under the lock, before whoever waits is told.
  std::atomic<int64_t> unfinished_{0};
  std::atomic<bool> failed_{false};
};

// Streams are handed out in turn once there are this many, as CUDA does.
constexpr size_t kStreamsPerDevice = 33;

inline std::mutex streams_mutex;
// Never freed: their threads outlive static destruction. In the order of their numbers, without gaps.
inline std::atomic<Queue*> streams[kMaxDevices][kStreamsPerDevice];
inline thread_local c10::StreamId current_stream_id[kMaxDevices] = {};

inline Queue& queue(c10::StreamId id, DeviceIndex device) {
  auto& made = streams[device];
  TORCH_CHECK(id >= 0 && size_t(id) < kStreamsPerDevice, "simulated device: there is no stream ", id);
  if (auto* found = made[id].load(std::memory_order_acquire)) return *found;
  std::lock_guard<std::mutex> lock(streams_mutex);
  for (c10::StreamId each = 0; each <= id; ++each)
    if (!made[each]) made[each] = new Queue;
  return *made[id];
}
inline Queue& queue(const c10::Stream& stream) { return queue(stream.id(), stream.device_index()); }
inline Queue& current_queue(DeviceIndex device) { return queue(current_stream_id[device], device); }

inline c10::StreamId next_stream(DeviceIndex device) {
  static size_t handed_out[kMaxDevices] = {};
  std::lock_guard<std::mutex> lock(streams_mutex);
  return c10::StreamId(1 + handed_out[device]++ % (kStreamsPerDevice - 1));  // 0 is the default stream
}

inline std::vector<Queue*> queues_of(DeviceIndex device) {
  check_index(device);
  std::vector<Queue*> made;
  for (auto& each : streams[device])
    if (each) made.push_back(each);
  return made;
}

inline void check_not_capturing(const Queue& stream, const char* what) {
  TORCH_CHECK(!stream.capture, "simulated device: ", what, " is not permitted while the stream is capturing");
}

class Event {
 public:
  Event(bool timing) : timing_(timing) {}

  void record(Queue& stream) {
    if (stream.capture) {
      capture_ = stream.capture;
      return;
    }
    capture_.reset();
    races::recorded(seen_, &stream);
    auto number = [this] {
      std::lock_guard<std::mutex> lock(mutex_);
      return ++asked_;
    }();
    stream.push([this, number] { reach(number); });
  }

  // Work given to `stream` from now on waits for the event.
  void block(Queue& stream) {
    if (auto capture = capture_.lock()) {
      stream.capture = capture;  // it waits for captured work: it is part of the capture too
      return;
    }
    auto number = latest();
    races::stream_waited(&stream, seen_);
    stream.push([this, number] { wait(number); });
  }

  void synchronize() {
    wait(latest());
    races::host_waited(seen_);
  }
  bool query() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (done_ < asked_) return false;
    }
    races::host_waited(seen_);
    return true;
  }

  double milliseconds_until(Event& end) {
    TORCH_CHECK(timing_ && end.timing_, "both events must be made with timing enabled to measure elapsed time");
    TORCH_CHECK(asked_ && end.asked_, "both events must be recorded before calculating elapsed time");
    TORCH_CHECK(query() && end.query(), "both events must be completed before calculating elapsed time");
    return std::chrono::duration<double, std::milli>(end.at_ - at_).count();
  }

 private:
  uint64_t latest() {
    std::lock_guard<std::mutex> lock(mutex_);
    return asked_;
  }
  void reach(uint64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = std::max(done_, number);
    at_ = std::chrono::steady_clock::now();
    reached_.notify_all();
  }
  void wait(uint64_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    reached_.wait(lock, [&] { return done_ >= number; });
  }

  std::mutex mutex_;
  std::condition_variable reached_;
  uint64_t asked_ = 0, done_ = 0;  // how often it was recorded, and how far the stream has come
  bool timing_;
  std::chrono::steady_clock::time_point at_;
  std::weak_ptr<Recording> capture_;
  races::Clock seen_;
};

// What a program does, and not what a kernel does of itself: wait on the host for all that the stream was given.
inline void wait_on_host(Queue& stream) {
  stream.synchronize();
  races::host_waited_for(&stream);
}

}  // namespace simulated
