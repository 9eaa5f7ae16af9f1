// Kernels that PyTorch picks by device type and has not for CPU, so that the fallback cannot serve them.
#pragma once

#include "kernels.h"

namespace simulated {

inline at::Tensor or_empty(const MaybeTensor& tensor) { return tensor ? *tensor : at::Tensor(); }
inline MaybeTensor or_none(const at::Tensor& tensor) { return tensor.defined() ? MaybeTensor(tensor) : std::nullopt; }
inline at::Tensor or_zeros(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.defined() ? tensor : at::zeros_like(like);
}

// Convolution as a whole: left to itself, PyTorch chooses another algorithm for each device type, and the
// results would differ from CPU's in their last bits.
struct Window {
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
};

inline at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const MaybeTensor& bias, Ints stride,
    Ints padding, Ints dilation, bool transposed, Ints output_padding, int64_t groups) {
  Window w{stride.vec(), padding.vec(), dilation.vec(), output_padding.vec(), transposed, groups};
  return emulate("aten::convolution", {input, weight, or_empty(bias)}, [w](const Tensors& in) -> Tensors {
    return {at::convolution(
        in[0], in[1], or_none(in[2]), w.stride, w.padding, w.dilation, w.transposed, w.output_padding, w.groups)};
  })[0];
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad, const at::Tensor& input,
    const at::Tensor& weight, at::OptionalIntArrayRef bias_sizes, Ints stride, Ints padding, Ints dilation,
    bool transposed, Ints output_padding, int64_t groups, std::array<bool, 3> mask) {
  Window w{stride.vec(), padding.vec(), dilation.vec(), output_padding.vec(), transposed, groups};
  auto bias = bias_sizes ? std::optional<std::vector<int64_t>>(bias_sizes->vec()) : std::nullopt;
  auto results = emulate("aten::convolution_backward", {grad, input, weight}, [=](const Tensors& in) -> Tensors {
    auto sizes = bias ? at::OptionalIntArrayRef(*bias) : at::OptionalIntArrayRef();
    auto [a, b, c] = at::convolution_backward(in[0], in[1], in[2], sizes, w.stride, w.padding, w.dilation, w.transposed,
        w.output_padding, w.groups, mask);
    return {a, b, c};
  });
  return {results[0], results[1], results[2]};
}

// PyTorch drops out in one kernel where it has no rule for CPU, and that kernel rounds the way back otherwise.
inline at::Tensor dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  return emulate("aten::native_dropout_backward", {grad, mask}, [scale](const Tensors& in) -> Tensors {
    if (!in[0].is_floating_point()) return {at::native_dropout_backward(in[0], in[1], scale)};
    return {in[0] * in[1].to(in[0].scalar_type()).div_(1 / scale)};
  })[0];
}

// Recurrent cells. The workspace that goes to the backward kernel holds the activated gates.

inline at::Tensor sum_of_gates(const Tensors& in, size_t first_bias) {
  auto gates = in[0] + in[1];
  for (size_t i = first_bias; i < in.size(); ++i)
    if (in[i].defined()) gates = gates + in[i];
  return gates;
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates,
    const at::Tensor& hidden_gates, const at::Tensor& cell, const MaybeTensor& input_bias, const MaybeTensor& hidden_bias) {
  auto r = emulate("aten::_thnn_fused_lstm_cell",
      {input_gates, hidden_gates, cell, or_empty(input_bias), or_empty(hidden_bias)}, [](const Tensors& in) -> Tensors {
        auto gates = sum_of_gates(in, 3).chunk(4, 1);
        auto i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
        auto next = f * in[2] + i * g;
        return {o * next.tanh(), next, at::cat({i, f, g, o}, 1)};
      });
  return {r[0], r[1], r[2]};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const MaybeTensor& grad_hidden,
    const MaybeTensor& grad_cell, const at::Tensor& cell, const at::Tensor& next, const at::Tensor& workspace,
    bool has_bias) {
  auto compute = [has_bias](const Tensors& in) -> Tensors {
    auto &cell = in[0], &next = in[1];
    auto gates = in[2].chunk(4, 1);
    auto &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
    auto grad_hidden = or_zeros(in[3], next), tanh = next.tanh();
    auto grad_next = or_zeros(in[4], next) + grad_hidden * o * (1 - tanh * tanh);
    auto grad_gates = at::cat({grad_next * g * i * (1 - i), grad_next * cell * f * (1 - f), grad_next * i * (1 - g * g),
                                  grad_hidden * tanh * o * (1 - o)}, 1);
    return {grad_gates, grad_next * f, has_bias ? grad_gates.sum(0) : at::Tensor()};
  };
  auto r = emulate("aten::_thnn_fused_lstm_cell_backward_impl",
      {cell, next, workspace, or_empty(grad_hidden), or_empty(grad_cell)}, compute);
  return {r[0], r[1], r[2]};
}

inline std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
    const at::Tensor& hidden, const MaybeTensor& input_bias, const MaybeTensor& hidden_bias) {
  auto r = emulate("aten::_thnn_fused_gru_cell",
      {input_gates, hidden_gates, hidden, or_empty(input_bias), or_empty(hidden_bias)}, [](const Tensors& in) -> Tensors {
        auto x = (in[3].defined() ? in[0] + in[3] : in[0]).chunk(3, 1);
        auto h = (in[4].defined() ? in[1] + in[4] : in[1]).chunk(3, 1);
        auto reset = (x[0] + h[0]).sigmoid(), update = (x[1] + h[1]).sigmoid(), fresh = (x[2] + reset * h[2]).tanh();
        return {fresh + update * (in[2] - fresh), at::cat({reset, update, fresh, in[2], h[2]}, 1)};
      });
  return {r[0], r[1]};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad, const at::Tensor& workspace, bool has_bias) {
  auto r = emulate("aten::_thnn_fused_gru_cell_backward", {grad, workspace}, [has_bias](const Tensors& in) -> Tensors {
    auto kept = in[1].chunk(5, 1);
    auto &reset = kept[0], &update = kept[1], &fresh = kept[2], &hidden = kept[3], &hidden_fresh = kept[4];
    auto by_fresh = in[0] * (1 - update) * (1 - fresh * fresh);
    auto by_reset = by_fresh * hidden_fresh * reset * (1 - reset);
    auto by_update = in[0] * (hidden - fresh) * update * (1 - update);
    auto by_input = at::cat({by_reset, by_update, by_fresh}, 1);
    auto by_hidden = at::cat({by_reset, by_update, by_fresh * reset}, 1);
    auto bias = [&](const at::Tensor& gates) { return has_bias ? gates.sum(0) : at::Tensor(); };
    return {by_input, by_hidden, in[0] * update, bias(by_input), bias(by_hidden)};
  });
  return {r[0], r[1], r[2], r[3], r[4]};
}

}  // namespace simulated
