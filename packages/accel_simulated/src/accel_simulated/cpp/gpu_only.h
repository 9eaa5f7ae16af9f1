// Operators that PyTorch has kernels of for GPUs only, made of operators that the CPU has. Those that nobody calls
// by himself and that are not here are refused by the fallback.
#pragma once

#include "kernels.h"

namespace simulated {

// Synchronised batch norm. The channels are the second dimension; sums are in float32 where the input has less.
inline at::Tensor by_channel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = values.numel();
  return values.view(shape);
}
inline std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dimensions{0};
  for (int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}
inline at::Tensor summable(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

inline std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor& input, double eps) {
  auto [variance, mean] = at::var_mean(summable(input), all_but_channels(input), /*unbiased=*/false);
  return {mean, (variance + eps).rsqrt()};
}

inline at::Tensor batch_norm_elemt(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
    const at::Tensor& mean, const at::Tensor& invstd, double) {
  auto out = (summable(input) - by_channel(mean, input)) * by_channel(invstd, input);
  if (weight && weight->defined()) out = out * by_channel(*weight, input);
  if (bias && bias->defined()) out = out + by_channel(*bias, input);
  return out.to(input.scalar_type());
}

inline at::Tensor& batch_norm_elemt_out(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
    const at::Tensor& mean, const at::Tensor& invstd, double eps, at::Tensor& out) {
  out.resize_(input.sizes());
  return out.copy_(simulated::batch_norm_elemt(input, weight, bias, mean, invstd, eps));
}

// What all processes saw, of what each saw: a row of `mean` and `invstd` and a number of `counts` for each.
inline std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats_with_counts(const at::Tensor&, const at::Tensor& mean,
    const at::Tensor& invstd, const MaybeTensor& running_mean, const MaybeTensor& running_var, double momentum, double eps,
    const at::Tensor& counts) {
  auto seen = counts.to(mean.scalar_type()).view({-1, 1});
  auto total = seen.sum();
  auto together = (mean * seen).sum(0) / total;
  auto squares = (invstd.pow(-2) - eps + (mean - together).square()) * seen;
  auto variance = squares.sum(0) / total;
  if (running_mean && running_mean->defined()) running_mean->mul_(1 - momentum).add_(together * momentum);
  if (running_var && running_var->defined())
    running_var->mul_(1 - momentum).add_(variance * (total / (total - 1)) * momentum);
  return {together, (variance + eps).rsqrt()};
}

inline std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats(const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& invstd, const MaybeTensor& running_mean, const MaybeTensor& running_var, double momentum, double eps,
    int64_t count) {
  auto counts = at::full({mean.size(0)}, count, mean.options());
  return simulated::batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(const at::Tensor& grad,
    const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd, const MaybeTensor& weight, bool for_input,
    bool for_weight, bool for_bias) {
  auto dimensions = all_but_channels(input);
  auto arriving = summable(grad);
  auto sum = arriving.sum(dimensions);
  auto sum_centred = (arriving * (summable(input) - by_channel(mean, input))).sum(dimensions);
  auto type = weight && weight->defined() ? weight->scalar_type() : sum.scalar_type();
  return {for_input ? sum : at::Tensor(), for_input ? sum_centred : at::Tensor(),
      for_weight ? (sum_centred * invstd).to(type) : at::Tensor(), for_bias ? sum.to(type) : at::Tensor()};
}

inline at::Tensor batch_norm_backward_elemt(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& invstd, const MaybeTensor& weight, const at::Tensor& sum, const at::Tensor& sum_centred,
    const at::Tensor& counts) {
  auto total = counts.sum().to(sum.scalar_type());
  auto centred = summable(input) - by_channel(mean, input);
  auto slope = by_channel(sum_centred / total * invstd.square(), input);
  auto out = (summable(grad) - by_channel(sum / total, input) - centred * slope) * by_channel(invstd, input);
  if (weight && weight->defined()) out = out * by_channel(*weight, input);
  return out.to(input.scalar_type());
}

// Products of matrices of one type in another, as torch.mm(…, out_dtype=…) asks for.
inline at::Tensor mm_dtype(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return at::mm(a.to(type), b.to(type));
}
inline at::Tensor bmm_dtype(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return at::bmm(a.to(type), b.to(type));
}
inline at::Tensor addmm_dtype(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
    const at::Scalar& beta, const at::Scalar& alpha) {
  return at::addmm(to.to(type), a.to(type), b.to(type), beta, alpha);
}
inline at::Tensor baddbmm_dtype(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
    const at::Scalar& beta, const at::Scalar& alpha) {
  return at::baddbmm(to.to(type), a.to(type), b.to(type), beta, alpha);
}

// Softmax of float16 that gives float32, as autocast on a GPU computes it: CPU's kernels refuse two types. Each calls
// the operator's out= variant, which the fallback runs.
#define SIM_SOFTMAX(name)                                                                                           \
  inline at::Tensor name(const at::Tensor& input, int64_t dim, bool half_to_float) {                                 \
    auto computed = half_to_float ? input.to(at::kFloat) : input;                                                     \
    auto out = at::empty({0}, computed.options());                                                                    \
    return at::name##_out(out, computed, dim, /*half_to_float=*/false);                                               \
  }                                                                                                                   \
  inline at::Tensor name##_backward_data(                                                                             \
      const at::Tensor& grad, const at::Tensor& output, int64_t dim, at::ScalarType input_type) {                      \
    auto out = at::empty({0}, grad.options());                                                                        \
    return at::name##_backward_data_out(out, grad, output, dim, grad.scalar_type()).to(input_type);                    \
  }
SIM_SOFTMAX(_softmax)
SIM_SOFTMAX(_log_softmax)
#undef SIM_SOFTMAX

inline void register_gpu_only(torch::Library& library) {
  if (kIsMps) return;  // Metal has none of these either
  library.impl("_softmax", TORCH_FN(_softmax));
  library.impl("_softmax_backward_data", TORCH_FN(_softmax_backward_data));
  library.impl("_log_softmax", TORCH_FN(_log_softmax));
  library.impl("_log_softmax_backward_data", TORCH_FN(_log_softmax_backward_data));
  library.impl("batch_norm_stats", TORCH_FN(batch_norm_stats));
  library.impl("batch_norm_elemt", TORCH_FN(batch_norm_elemt));
  library.impl("batch_norm_elemt.out", TORCH_FN(batch_norm_elemt_out));
  library.impl("batch_norm_gather_stats", TORCH_FN(batch_norm_gather_stats));
  library.impl("batch_norm_gather_stats_with_counts", TORCH_FN(batch_norm_gather_stats_with_counts));
  library.impl("batch_norm_backward_reduce", TORCH_FN(batch_norm_backward_reduce));
  library.impl("batch_norm_backward_elemt", TORCH_FN(batch_norm_backward_elemt));
  library.impl("mm.dtype", TORCH_FN(mm_dtype));
  library.impl("bmm.dtype", TORCH_FN(bmm_dtype));
  library.impl("addmm.dtype", TORCH_FN(addmm_dtype));
  library.impl("baddbmm.dtype", TORCH_FN(baddbmm_dtype));
}

}  // namespace simulated
