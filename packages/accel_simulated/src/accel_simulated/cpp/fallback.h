// One boxed kernel for every other operator: CPU's, run on host aliases of the device's memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include "kernels.h"

namespace simulated {

inline std::atomic<int64_t> fallback_calls{0};

using Stack = torch::jit::Stack;

template <class F>
void each_tensor(const c10::IValue& value, F&& visit) {
  if (value.isTensor()) visit(value.toTensor());
  else if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorList()) visit(tensor);
  else if (value.isOptionalTensorList())
    for (auto& tensor : value.toOptionalTensorVector())
      if (tensor) visit(*tensor);
}

template <class F>
void change_tensors(c10::IValue& value, F&& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> changed;
    for (const at::Tensor& tensor : value.toTensorList()) changed.push_back(change(tensor));
    value = std::move(changed);
  } else if (value.isOptionalTensorList()) {
    c10::List<MaybeTensor> changed;
    for (auto& tensor : value.toOptionalTensorVector())
      changed.push_back(tensor ? MaybeTensor(change(*tensor)) : std::nullopt);
    value = std::move(changed);
  }
}

// One call of one operator, whose arguments are the last of the stack: to the host and back, in their places.
class FallbackCall {
 public:
  FallbackCall(const c10::OperatorHandle& op, c10::DispatchKey key, Stack* stack)
      : op_(op), schema_(op.schema()), key_(key), stack_(*stack), first_(stack->size() - schema_.arguments().size()) {}
  ~FallbackCall() {
    for (auto& pair : seen_) Aliases::give_back(std::move(pair.host));
  }

  void run() {
    find_device();
    recording_ = begin_kernel(device_.index());
    // Kernels that do otherwise for who will want a gradient.
    asks_for_gradients_ = schema_.name() == "aten::_fused_sdp_choice" || schema_.name() == "aten::_sparse_mm_reduce_impl";
    if (recording_) given_.assign(stack_.begin() + first_, stack_.end());
    if (races::looked_for) look_for_races();
    to_host(stack_, first_);
    auto generator = find_generator();
    if (recording_) {
      save_what_is_written();
      if (generator) recording_->save(generator.get());
    }
    {
      std::optional<HostMemory::Lend> lend;  // not to what becomes part of a tensor on the host
      if (!writes_to_host_) lend.emplace(device_.index());
      call(op_, key_, stack_, first_, generator, generator_slot_);
    }
    give_back();
    if (races::looked_for) undo_and_note();
    if (recording_) record(generator);
  }

 private:
  using GeneratorPtr = c10::intrusive_ptr<Generator>;
  struct Pair {
    at::Tensor ours, host;
    bool is_early = false;  // `host` is other memory
  };

  // The device of the arguments; all of them must be on it.
  void find_device() {
    std::optional<Device> found;
    auto check = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (!is_here(tensor)) {
        if (tensor.dim() == 0 || !tensor.is_cpu() || takes_host_tensors()) return;
        TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
            Device(kType, selected_device), " and cpu! (", schema_.name(), ")");
      } else if (found) {
        TORCH_CHECK(*found == tensor.device(),
            "Expected all tensors to be on the same device, but found at least two devices, ", *found, " and ",
            tensor.device(), "! (", schema_.name(), ")");
      } else {
        found = tensor.device();
      }
    };
    for (auto i = first_; i < stack_.size(); ++i) each_tensor(stack_[i], check);
    for (auto i = first_; i < stack_.size() && !found; ++i)
      if (stack_[i].isDevice() && stack_[i].toDevice().type() == kType)
        found = Device(kType, index_of(stack_[i].toDevice()));
    device_ = found.value_or(Device(kType, selected_device));
  }

  // Indices may be on the host, and sparse tensors are copied from and to it.
  bool takes_host_tensors() {
    auto& name = schema_.name();
    writes_to_host_ = name == "aten::copy_" || name == "aten::copy_sparse_to_sparse_";
    return writes_to_host_ || name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_";
  }

  // Replace the arguments from `first` on by what CPU's kernel takes.
  void to_host(Stack& stack, size_t first) {
    auto alias = [this](const at::Tensor& tensor) { return alias_of(tensor); };
    for (auto i = first; i < stack.size(); ++i) {
      if (stack[i].isDevice() && stack[i].toDevice().type() == kType) stack[i] = Device(at::kCPU);
      else change_tensors(stack[i], alias);
    }
  }

  // What another stream writes later still, as far as anybody knows, is not there yet; and what this kernel writes
  // into that the other one writes over.
  void look_for_races() {
    for (auto i = first_; i < stack_.size(); ++i) {
      auto* changes = schema_.arguments()[i - first_].alias_info();
      if (changes && !changes->isWrite()) continue;  // a view of it, which reads nothing
      each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        if (!too_early(tensor, device_.index(), changes, schema_.name())) return;
        if (!changes) return early_.push_back(tensor);
        auto* bytes = static_cast<const char*>(tensor.storage().data());
        undone_.emplace_back(tensor.storage(), std::string(bytes, tensor.storage().nbytes()));
      });
    }
  }
  void undo_and_note() {
    for (auto& [storage, bytes] : undone_)
      std::memcpy(storage.mutable_data(), bytes.data(), std::min(bytes.size(), storage.nbytes()));
    for (auto i = first_; i < stack_.size(); ++i)
      each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        if (!shares_memory(tensor)) too_early(tensor, device_.index(), true, schema_.name());
      });
  }

  // One tensor has one alias, and one storage one on the host: kernels look for arguments that overlap.
  at::Tensor alias_of(const at::Tensor& tensor) {
    if (!tensor.defined() || !is_here(tensor)) return tensor;
    bool strided = has_storage(tensor);
    const Pair* shares = nullptr;
    for (auto& pair : seen_) {
      if (pair.ours.is_same(tensor)) return pair.host;
      if (strided && has_storage(pair.ours) && pair.ours.storage().is_alias_of(tensor.storage())) shares = &pair;
    }
    at::Tensor host;
    bool is_early = std::any_of(early_.begin(), early_.end(), [&](auto& each) { return each.is_same(tensor); });
    if (is_early) {
      host = unwritten(tensor);
    } else if (shares) {
      host = over(c10::Storage(shares->host.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor);
    } else if (tensor.is_nested()) {
      host = nested_with(tensor, [this](const at::Tensor& part) { return alias_of(part); });
    } else if (!strided) {
      host = new_sparse(tensor, Device(c10::kCPU));
      assign_sparse(host, tensor, [this](const at::Tensor& part) { return alias_of(part); });
    } else {
      host = recording_ ? on_host(tensor) : Aliases::take(tensor);  // a graph keeps it
    }
    if (asks_for_gradients_ && tensor.requires_grad()) host.set_requires_grad(true);
    seen_.push_back({tensor, host, is_early});
    return host;
  }

  // Random numbers come from the generator that was given, else from the device's.
  GeneratorPtr find_generator() {
    if (!op_.hasTag(at::Tag::nondeterministic_seeded)) return {};
    auto& arguments = schema_.arguments();
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].name() == "generator") generator_slot_ = int(i);
    bool given = generator_slot_ >= 0 && stack_[first_ + generator_slot_].isGenerator();
    auto generator = given ? stack_[first_ + generator_slot_].toGenerator() : default_generator(device_.index());
    TORCH_CHECK(generator.device().type() == kType, "Expected a '", kType, "' device type for generator but found '",
        generator.device().type(), "' (", schema_.name(), ")");
    auto* ours = as_simulated(generator);
    if (!ours->leaves_it_to_host()) return GeneratorPtr::reclaim_copy(ours);
    if (given) stack_[first_ + generator_slot_] = c10::IValue();
    return {};
  }

  static void call(const c10::OperatorHandle& op, c10::DispatchKey key, Stack& stack, size_t first,
      const GeneratorPtr& generator, int slot) {
    at::AutoDispatchBelowADInplaceOrView below;
    if (!generator) return op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
    std::optional<LentToDefault> lent;
    std::lock_guard<std::mutex> lock(generator->mutex_);
    auto numbers = generator->draw();
    if (slot >= 0) stack[first + slot] = numbers;
    else lent.emplace(numbers);
    op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  }

  // Replace the results on the stack by tensors of ours.
  void give_back() {
    for (auto& pair : seen_)  // an out= argument that the kernel gave other memory
      if (!pair.is_early && has_storage(pair.host) && pair.host.storage().data() != pair.ours.storage().data())
        take_memory(pair);
    auto change = [this](const at::Tensor& host) { return to_device(host); };
    for (auto i = first_; i < stack_.size(); ++i) change_tensors(stack_[i], change);
  }

  at::Tensor to_device(const at::Tensor& host) {
    if (!host.defined() || is_here(host)) return host;
    bool strided = has_storage(host);
    const Pair* shares = nullptr;
    for (auto& pair : seen_) {
      if (host.is_same(pair.host)) return return_argument(pair);
      if (strided && has_storage(pair.host) && host.storage().is_alias_of(pair.host.storage())) shares = &pair;
    }
    if (shares)  // a view: the same bytes in another shape
      return view_of(shares->ours, host);
    if (host.is_nested()) return nested_with(host, [this](const at::Tensor& part) { return to_device(part); });
    if (!strided) {
      auto made = new_sparse(host, device_);
      assign_sparse(made, host, [this](const at::Tensor& part) { return to_device(part); });
      return made;
    }
    for (auto& [bytes, storage] : made_)  // several results with the same memory
      if (host.storage().is_alias_of(bytes)) return over(c10::Storage(storage), kKeys, host);
    auto made = on_device(host, device_);
    if (host.storage().use_count() > 1) made_.emplace_back(host.storage(), made.storage());
    return made;
  }

  // An argument that the kernel wrote to: its shape may have changed.
  at::Tensor return_argument(const Pair& pair) {
    auto& ours = pair.ours;
    auto& host = pair.host;
    if (ours.is_nested()) return ours;
    if (!has_storage(ours)) {
      assign_sparse(ours, host, [this](const at::Tensor& part) { return to_device(part); });
    } else if (ours.sizes() != host.sizes() || ours.strides() != host.strides() ||
        ours.storage_offset() != host.storage_offset()) {
      ours.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    }
    if (ours.is_conj() != host.is_conj()) ours._set_conj(host.is_conj());
    return ours;
  }

  // The kernel gave `host` other memory: it becomes that of `ours` too.
  void take_memory(Pair& pair) {
    auto& target = const_cast<c10::Storage&>(pair.ours.storage());
    auto& source = const_cast<c10::Storage&>(pair.host.storage());
    auto bytes = source.nbytes();
    if (auto taken = adopted(source, device_)) {
      target.set_data_ptr_noswap(taken.set_data_ptr(c10::DataPtr(nullptr, device_)));
    } else {
      auto data = DeviceMemory::get().allocate_on(device_.index(), bytes);
      if (bytes) std::memcpy(data.get(), source.data(), bytes);
      target.set_data_ptr_noswap(std::move(data));
    }
    target.set_nbytes(bytes);
    source.set_data_ptr_noswap(bytes_of(target, Device(c10::kCPU)));
    return_argument(pair);
  }

  void save_what_is_written() const {
    // Batch norm updates its running statistics without saying so in its schema.
    bool unsaid = schema_.name() == "aten::native_batch_norm";
    for (size_t i = 0; i < given_.size(); ++i) {
      auto& argument = schema_.arguments()[i];
      bool running = unsaid && argument.name().rfind("running_", 0) == 0;
      if (!running && !(argument.alias_info() && argument.alias_info()->isWrite())) continue;
      each_tensor(given_[i], [&](const at::Tensor& tensor) {
        if (tensor.defined() && is_here(tensor) && has_storage(tensor)) recording_->save(tensor.storage());
      });
    }
  }

  void record(const GeneratorPtr& generator) {
    std::vector<std::pair<size_t, at::Tensor>> outputs;  // which new tensor each result goes to
    size_t number = 0;
    for (auto i = first_; i < stack_.size(); ++i)
      each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        if (is_here(tensor) && !shares_memory(tensor)) outputs.emplace_back(number, on_host(tensor));
        ++number;
      });
    seen_.clear();
    to_host(given_, 0);  // anew: an out= argument has its memory only now
    if (generator && generator_slot_ < 0) recording_->touches_host_generator = true;
    auto step = [op = op_, key = key_, arguments = given_, generator, slot = generator_slot_, outputs] {
      auto stack = arguments;
      call(op, key, stack, 0, generator, slot);
      Tensors again;
      for (auto& value : stack) each_tensor(value, [&](const at::Tensor& tensor) { again.push_back(tensor); });
      for (auto& [number, output] : outputs) output.copy_(again[number]);
    };
    recording_->add(schema_.name(), step);
    seen_.clear();
  }

  bool shares_memory(const at::Tensor& tensor) const {
    if (!has_storage(tensor)) return false;
    for (auto& pair : seen_)
      if (has_storage(pair.ours) && tensor.storage().is_alias_of(pair.ours.storage())) return true;
    return false;
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  c10::DispatchKey key_;
  Stack& stack_;
  size_t first_;
  Device device_{kType, 0};
  bool writes_to_host_ = false;
  bool asks_for_gradients_ = false;
  int generator_slot_ = -1;
  Recording* recording_ = nullptr;
  Stack given_;                        // the arguments, while they are recorded
  c10::SmallVector<Pair, 6> seen_;     // which alias stands for which tensor
  Tensors early_;                      // read before another stream has written them (races.h)
  std::vector<std::pair<c10::Storage, std::string>> undone_;
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 1> made_;
};

// For the operators of one layout: `Host` is the key of CPU's kernels for it.
template <c10::DispatchKey Host>
void fallback(const c10::OperatorHandle& op, Stack* stack) {
  ++fallback_calls;
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(Host), op.schema().name(),
      " is not simulated: a simulated device runs PyTorch's kernels for the CPU, and PyTorch has none of it (", Host, ")");
  FallbackCall(op, Host, stack).run();
}

template <c10::DispatchKey Host>
torch::CppFunction by_host() {
  return torch::CppFunction::makeFromBoxedFunction<&fallback<Host>>();
}

}  // namespace simulated
