// Graphs, as torch.accelerator.Graph has them; vendors' own graph classes are made of it in Python.
#pragma once

#include <ATen/core/GraphImplInterface.h>

#include <fstream>

#include "streams.h"

namespace simulated {

inline c10::MempoolId_t next_pool() {
  static std::atomic<c10::CaptureId_t> number{0};
  return {++number, 0};
}

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& = {}) {}
  ~Graph() override {
    if (capturing_) leave();
  }

  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode) override {
    device_ = selected_device;
    auto& stream = current_queue(device_);
    TORCH_CHECK(!recording_, "this graph has been captured already: reset it first");
    TORCH_CHECK(current_stream_id[device_] != 0, "a graph cannot be captured on the default stream");
    TORCH_CHECK(!stream.capture, "the stream is capturing another graph");
    pool_ = pool.first || pool.second ? pool : next_pool();
    recording_ = std::make_shared<Recording>();
    stream.synchronize();
    stream.capture = recording_;
    capturing_ = &stream;
  }

  void capture_end() override {
    TORCH_CHECK(capturing_, "this graph is not being captured");
    TORCH_CHECK(capturing_ == &current_queue(selected_device), "capture must end on the stream on which it began");
    leave();
    recording_->restore();
  }

  void instantiate() override { check_captured("instantiate"); }

  void replay() override {
    check_captured("replay");
    auto& stream = current_queue(device_);
    recording_->note_replay(&stream);
    stream.push([recording = recording_] { recording->replay(); });
    if (recording_->touches_host_generator) stream.synchronize();
  }

  void reset() override {
    TORCH_CHECK(!capturing_, "a graph that is being captured cannot be reset");
    recording_.reset();
  }

  c10::MempoolId_t pool() const override {
    check_captured("pool");
    return pool_;
  }

  void enable_debug_mode() override { debugging_ = true; }
  void debug_dump(const std::string& path) override {
    TORCH_CHECK(debugging_, "enable_debug_mode must be called before debug_dump");
    check_captured("debug_dump");
    std::ofstream(path) << recording_->describe();
  }

 private:
  void check_captured(const char* what) const {
    TORCH_CHECK(recording_ && !capturing_, "called ", what, " on a graph without a finished capture");
  }

  // End the capture on its stream, and on those that joined it by waiting for an event.
  void leave() {
    for (auto* stream : queues_of(device_))
      if (stream->capture == recording_) stream->capture.reset();
    capturing_ = nullptr;
  }

  DeviceIndex device_ = 0;
  std::shared_ptr<Recording> recording_;
  Queue* capturing_ = nullptr;
  c10::MempoolId_t pool_{0, 0};
  bool debugging_ = false;
};

// PyTorch looks for graphs under the device type's name, which PrivateUse1 is given late.
inline void register_graphs() {
  at::GraphImplRegistry()->Register(c10::DeviceTypeName(kType, false),
      [](const at::GraphImplArgs& arguments) { return std::make_unique<Graph>(arguments); });
}

}  // namespace simulated
