// One boxed kernel for every other operator: CPU's, run on host aliases of the device's memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels.h"

namespace simulated {

inline std::atomic<int64_t> fallback_calls{0};

using Stack = torch::jit::Stack;

// One call of one operator: from the stack to the host and back.
class FallbackCall {
 public:
  FallbackCall(const c10::OperatorHandle& op, Stack* stack)
      : op_(op), schema_(op.schema()), stack_(stack), count_(schema_.arguments().size()) {
    given_.assign(stack->end() - count_, stack->end());
  }

  void run() {
    find_device();
    auto* recording = begin_kernel(device_.index());
    auto arguments = to_host();
    if (recording) save_what_is_written(*recording);
    auto generator = find_generator();
    if (recording && generator) recording->save(generator.get());
    auto results = call(op_, arguments, generator, generator_slot_);
    give_back(results);
    if (recording) record(*recording, generator, results);
  }

 private:
  using GeneratorPtr = c10::intrusive_ptr<Generator>;

  // The device of the arguments; all of them must be on it.
  void find_device() {
    std::optional<Device> found;
    auto check = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (!is_here(tensor)) {
        TORCH_CHECK(tensor.dim() == 0 || !tensor.is_cpu() || takes_host_indices(),
            "Expected all tensors to be on the same device, but found at least two devices, ",
            Device(kType, selected_device), " and cpu! (", schema_.name(), ")");
      } else if (found) {
        TORCH_CHECK(*found == tensor.device(),
            "Expected all tensors to be on the same device, but found at least two devices, ", *found, " and ",
            tensor.device(), "! (", schema_.name(), ")");
      } else {
        found = tensor.device();
      }
    };
    for (auto& value : given_) each_tensor(value, check);
    for (auto& value : given_)
      if (!found && value.isDevice() && value.toDevice().type() == kType)
        found = Device(kType, index_of(value.toDevice()));
    device_ = found.value_or(Device(kType, selected_device));
  }

  bool takes_host_indices() const {
    return schema_.name() == "aten::index" || schema_.name() == "aten::index_put_" ||
        schema_.name() == "aten::_index_put_impl_";
  }

  template <class F>
  static void each_tensor(const c10::IValue& value, F visit) {
    if (value.isTensor()) visit(value.toTensor());
    else if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
    else if (value.isOptionalTensorList())
      for (auto& tensor : value.toOptionalTensorVector())
        if (tensor) visit(*tensor);
  }

  template <class F>
  static c10::IValue map_tensors(const c10::IValue& value, F change) {
    if (value.isTensor()) return change(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> changed;
      for (const at::Tensor& tensor : value.toTensorVector()) changed.push_back(change(tensor));
      return changed;
    }
    if (value.isOptionalTensorList()) {
      c10::List<MaybeTensor> changed;
      for (auto& tensor : value.toOptionalTensorVector())
        changed.push_back(tensor ? MaybeTensor(change(*tensor)) : std::nullopt);
      return changed;
    }
    return value;
  }

  // The arguments for CPU's kernel; `seen_` remembers which alias stands for which tensor.
  Stack to_host() {
    Stack arguments;
    seen_.clear();
    auto alias = [&](const at::Tensor& tensor) {
      if (!is_here(tensor)) return tensor;
      for (auto& [ours, host] : seen_)
        if (ours.is_same(tensor)) return host;
      return seen_.emplace_back(tensor, on_host(tensor)).second;
    };
    for (size_t i = 0; i < count_; ++i) {
      auto& value = given_[i];
      if (value.isDevice() && value.toDevice().type() == kType) arguments.emplace_back(Device(at::kCPU));
      else arguments.push_back(map_tensors(value, alias));
      if (schema_.arguments()[i].name() == "generator") generator_slot_ = int(i);
    }
    return arguments;
  }

  // Random numbers come from the generator that was given, else from the device's.
  GeneratorPtr find_generator() const {
    if (!op_.hasTag(at::Tag::nondeterministic_seeded)) return {};
    bool given = generator_slot_ >= 0 && given_[generator_slot_].isGenerator();
    if (!given && draw_from_host) return {};
    auto generator = given ? given_[generator_slot_].toGenerator() : default_generator(device_.index());
    return GeneratorPtr::reclaim_copy(as_simulated(generator));
  }

  static Stack call(const c10::OperatorHandle& op, Stack arguments, const GeneratorPtr& generator, int slot) {
    std::optional<LentToDefault> lent;
    if (generator) {
      std::lock_guard<std::mutex> lock(generator->mutex_);
      auto numbers = generator->draw();
      if (slot >= 0) arguments[slot] = numbers;
      else lent.emplace(numbers);
    }
    at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &arguments);
    return arguments;
  }

  // Put the results on the stack, as tensors of ours.
  void give_back(const Stack& results) {
    c10::DeviceGuard guard(device_);
    for (auto& [ours, host] : seen_)  // an out= argument that the kernel gave other memory
      if (host.storage().data() != ours.storage().data() && host.numel()) return_argument(ours, host);
    stack_->erase(stack_->end() - count_, stack_->end());
    for (auto& value : results)
      stack_->push_back(map_tensors(value, [&](const at::Tensor& host) { return to_device(host); }));
  }

  at::Tensor to_device(const at::Tensor& host) const {
    if (!host.defined() || is_here(host)) return host;
    for (auto& [ours, alias] : seen_) {
      if (host.is_same(alias)) return return_argument(ours, alias);
      if (host.storage().is_alias_of(alias.storage())) {  // a view: the same bytes in another shape
        auto view = at::detail::make_tensor<c10::TensorImpl>(
            c10::TensorImpl::VIEW, c10::Storage(ours.storage()), ours.key_set(), host.dtype());
        view.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
        return view;
      }
    }
    return on_device(host, device_);
  }

  // An argument that the kernel wrote to: its shape may have changed, and even its memory.
  static at::Tensor return_argument(const at::Tensor& ours, const at::Tensor& host) {
    if (host.storage().data() != ours.storage().data()) {
      ours.resize_(host.sizes());
      on_host(ours).copy_(host);
    } else {
      ours.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    }
    return ours;
  }

  void save_what_is_written(Recording& recording) const {
    // Batch norm updates its running statistics without saying so in its schema.
    bool unsaid = schema_.name() == "aten::native_batch_norm";
    for (size_t i = 0; i < count_; ++i) {
      auto* alias = schema_.arguments()[i].alias_info();
      bool running = unsaid && schema_.arguments()[i].name().rfind("running_", 0) == 0;
      if (!running && !(alias && alias->isWrite())) continue;
      each_tensor(given_[i], [&](const at::Tensor& tensor) {
        if (is_here(tensor)) recording.save(tensor.storage());
      });
    }
  }

  void record(Recording& recording, const GeneratorPtr& generator, const Stack& results) {
    auto arguments = to_host();  // anew: an out= argument has its memory only now
    std::vector<std::pair<size_t, at::Tensor>> outputs;  // which new tensor each result goes to
    size_t number = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      auto& ours = (*stack_)[stack_->size() - results.size() + i];
      each_tensor(ours, [&](const at::Tensor& tensor) {
        if (is_here(tensor) && !shares_memory(tensor)) outputs.emplace_back(number, on_host(tensor));
        ++number;
      });
    }
    if (generator && generator_slot_ < 0) recording.touches_host_generator = true;
    recording.add(schema_.name(), [op = op_, arguments, generator, slot = generator_slot_, outputs] {
      Tensors again;
      for (auto& value : call(op, arguments, generator, slot))
        each_tensor(value, [&](const at::Tensor& tensor) { again.push_back(tensor); });
      for (auto& [number, output] : outputs) output.copy_(again[number]);
    });
  }

  bool shares_memory(const at::Tensor& tensor) const {
    for (auto& [ours, host] : seen_)
      if (tensor.storage().is_alias_of(ours.storage())) return true;
    return false;
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack* stack_;
  size_t count_;
  Stack given_;
  Device device_{kType, 0};
  int generator_slot_ = -1;
  std::vector<std::pair<at::Tensor, at::Tensor>> seen_;
};

inline void fallback(const c10::OperatorHandle& op, Stack* stack) {
  ++fallback_calls;
  FallbackCall(op, stack).run();
}

}  // namespace simulated
