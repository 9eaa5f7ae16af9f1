// Gloo's all_reduce of CUDA tensors, which the CPU wheel lacks: it calls a null pointer there.
#pragma once

#include <c10/util/Registry.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "kernels.h"

namespace gloo {
class Context;
}

namespace c10d {
// As ProcessGroupGlooDetail.hpp declares it. That file needs gloo's own headers, which no wheel has.
using GlooAllreduces = c10::Registry<c10::DeviceType, c10::intrusive_ptr<Work>, std::shared_ptr<gloo::Context>,
    std::vector<at::Tensor>&, ReduceOp, uint32_t, uint64_t, std::chrono::milliseconds>;
TORCH_API GlooAllreduces* GlooAllreduceRegistry();
}  // namespace c10d

namespace simulated {

// The memory is the host's: once the streams are done, CPU's work serves it.
inline void serve_gloo() {
  c10d::GlooAllreduceRegistry()->Register(kType,
      [](std::shared_ptr<gloo::Context> context, std::vector<at::Tensor>& tensors, c10d::ReduceOp reduce, uint32_t tag,
          uint64_t number, std::chrono::milliseconds timeout) {
        for (auto& tensor : tensors) begin_kernel(tensor.device().index());
        return c10d::GlooAllreduceRegistry()->Create(c10::kCPU, context, tensors, reduce, tag, number, timeout);
      });
}

}  // namespace simulated
