// Composites of PyTorch's that take another way on a device than on CPU: here they take CPU's.
#pragma once

#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_cpu_dispatch.h>

#include "fallback.h"

namespace simulated {

// Which attention: what CPU would choose, whose fused kernel the fallback then runs. Not by the dispatcher: while
// `torch.compile` traces, that wants a tensor of every operator.
inline int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const MaybeTensor& mask, double dropout, bool causal, std::optional<double> scale, bool grouped) {
  return at::cpu::_fused_sdp_choice(query, key, value, mask, dropout, causal, scale, grouped);
}

// PyTorch asks built-in device types for kernels of their own.
inline void choose_attention_as_host() {
  if constexpr (kType == c10::DeviceType::PrivateUse1)
    at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose_attention);
  else if constexpr (kType == c10::DeviceType::HPU)
    at::native::_fused_sdp_choice_stub.set_hpu_dispatch_ptr(&choose_attention);
}

// Of xpu and mps PyTorch asks which attention in a way that a CPU build refuses: they take what needs no choice.
constexpr bool kAttentionByParts = kIsMps || kType == c10::DeviceType::XPU;

inline at::Tensor attention_by_parts(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const MaybeTensor& mask, double dropout, bool causal, std::optional<double> scale, bool grouped) {
  auto bias = mask;
  if (mask && mask->scalar_type() == at::kBool)  // as the operator itself does before it chooses
    bias = at::zeros_like(*mask, query.options()).masked_fill_(mask->logical_not(), -INFINITY);
  return std::get<0>(
      at::_scaled_dot_product_attention_math(query, key, value, bias, dropout, causal, {}, scale, grouped));
}

inline void register_attention(torch::Library& library) {
  if (kAttentionByParts) library.impl("scaled_dot_product_attention", TORCH_FN(attention_by_parts));
}

// Recurrent layers as a whole, on copies: PyTorch gives a device fused cells, which CPU has not, and CPU oneDNN's
// layers. The copies are differentiable, so CPU's own backward runs too.
inline void recurrent(const c10::OperatorHandle& op, Stack* stack) {
  auto first = stack->size() - op.schema().arguments().size();
  std::optional<Device> device;
  bool plain = true;
  auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (is_here(tensor)) device = device.value_or(tensor.device());
    plain &= is_here(tensor) ? !tensor.key_set().has(c10::DispatchKey::Python) : tensor.is_cpu();
  };
  for (auto i = first; i < stack->size(); ++i) each_tensor((*stack)[i], look);
  // A graph keeps kernels, not copies; tensors that are more than tensors want the operators that this is made of.
  if (!plain || !device || current_queue(device->index()).capture)
    return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  begin_kernel(device->index());
  auto move = [&](const at::Tensor& tensor, Device to) { return tensor.defined() ? tensor.to(to) : tensor; };
  for (auto i = first; i < stack->size(); ++i)
    change_tensors((*stack)[i], [&](const at::Tensor& tensor) { return move(tensor, Device(c10::kCPU)); });
  op.callBoxed(stack);
  for (auto i = first; i < stack->size(); ++i)
    change_tensors((*stack)[i], [&](const at::Tensor& tensor) { return move(tensor, *device); });
}

inline void register_recurrent(torch::Library& library) {
  for (auto* name : {"lstm.input", "lstm.data", "gru.input", "gru.data", "rnn_tanh.input", "rnn_tanh.data",
           "rnn_relu.input", "rnn_relu.data", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&recurrent>());
}

}  // namespace simulated
