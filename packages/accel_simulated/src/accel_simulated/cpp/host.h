// One tensor seen from both sides: the device's as a CPU tensor, and what a CPU kernel made as the device's.
#pragma once

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

#include "memory.h"

namespace simulated {

// Is it dense: one storage, seen with strides?
inline bool has_storage(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_nested();
}

inline void drop_storage(void* storage) {
  c10::intrusive_ptr<c10::StorageImpl>::reclaim(static_cast<c10::StorageImpl*>(storage));
}

// The bytes of `storage` under another device's name. They stay as long as anybody has them.
inline c10::DataPtr bytes_of(c10::Storage storage, Device device) {
  auto* bytes = storage.mutable_data();
  return {bytes, storage.unsafeReleaseStorageImpl(), &drop_storage, device};
}

inline void describe_as(const at::Tensor& tensor, const at::Tensor& like) {
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) tensor._set_conj(true);
  if (like.is_neg()) tensor._set_neg(true);
}

inline at::Tensor over(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  describe_as(tensor, like);
  return tensor;
}

// A view of `base`, with its keys, of the shape and type of `like`.
inline at::Tensor view_of(const at::Tensor& base, const at::Tensor& like) {
  auto keys = base.key_set().remove(c10::DispatchKey::Conjugate).remove(c10::DispatchKey::Negative);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), keys, like.dtype());
  describe_as(tensor, like);
  return tensor;
}

inline at::SparseTensorImpl* coo(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}
inline at::SparseCsrTensorImpl* compressed(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

// The nested tensor with its numbers changed by `change`; its sizes are on the host always.
template <class F>
at::Tensor nested_with(const at::Tensor& nested, F change) {
  auto* impl = at::native::get_nested_tensor_impl(nested);
  at::Tensor numbers = change(impl->get_unsafe_storage_as_tensor());
  auto key = is_here(numbers) ? c10::DispatchKey::SIM_JOIN(NestedTensor, SIM) : c10::DispatchKey::NestedTensorCPU;
  return at::detail::make_tensor<at::native::NestedTensorImpl>(c10::Storage(numbers.storage()), c10::DispatchKeySet(key),
      numbers.dtype(), impl->get_nested_sizes(), impl->get_nested_strides(), impl->get_storage_offsets());
}

// Make the sparse `to` what the sparse `from` is, each dense tensor of it changed by `change`.
template <class F>
void assign_sparse(const at::Tensor& to, const at::Tensor& from, F change) {
  if (to.layout() == at::kSparse) {
    auto *target = coo(to), *source = coo(from);
    target->raw_resize_(source->sparse_dim(), source->dense_dim(), from.sizes());
    target->set_indices_and_values_unsafe(change(source->indices()), change(source->values()));
    target->set_coalesced(source->coalesced());
  } else {
    auto* source = compressed(from);
    compressed(to)->set_member_tensors(
        change(source->compressed_indices()), change(source->plain_indices()), change(source->values()), from.sizes());
  }
}

// A tensor on `device` of the sparse layout of `like`, to be assigned to.
inline at::Tensor new_sparse(const at::Tensor& like, Device device) {
  c10::DeviceGuard guard(device);
  bool here = device.type() == kType;
  if (like.layout() == at::kSparse) {
    auto key = here ? c10::DispatchKey::SIM_JOIN(Sparse, SIM) : c10::DispatchKey::SparseCPU;
    return at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  }
  auto key = here ? c10::DispatchKey::SIM_JOIN(SparseCsr, SIM) : c10::DispatchKey::SparseCsrCPU;
  return at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(key), device, like.layout(), like.dtype());
}

// A CPU tensor over the whole storage of `tensor`, and the same view of it: kernels need no copies in.
inline at::Tensor on_host(const at::Tensor& tensor) {
  if (!is_here(tensor)) return tensor;
  if (tensor.is_nested()) return nested_with(tensor, on_host);
  if (!has_storage(tensor)) {
    auto alias = new_sparse(tensor, Device(c10::kCPU));
    assign_sparse(alias, tensor, on_host);
    return alias;
  }
  c10::Storage storage(c10::Storage::use_byte_size_t{}, tensor.storage().nbytes(),
      bytes_of(tensor.storage(), Device(c10::kCPU)), c10::GetAllocator(c10::kCPU), true);  // resizable, for out=
  return over(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor);
}

// The same for the length of one kernel: a thread makes such tensors once and uses them again.
class Aliases {
 public:
  static at::Tensor take(const at::Tensor& tensor) {
    if (unused_.empty() || !has_storage(tensor)) return on_host(tensor);
    auto alias = std::move(unused_.back());
    unused_.pop_back();
    auto* impl = alias.unsafeGetTensorImpl();
    auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(bytes_of(tensor.storage(), Device(c10::kCPU)));
    storage->set_nbytes(tensor.storage().nbytes());
    if (impl->dtype() != tensor.dtype()) impl->set_storage_and_dtype(impl->storage(), tensor.dtype());
    describe_as(alias, tensor);
    return alias;
  }

  // Nobody may have it but the caller; who keeps it, or a view of it, keeps it whole.
  static void give_back(at::Tensor&& alias) {
    if (!has_storage(alias) || alias.use_count() != 1 || unused_.size() >= kKept) return;
    auto* impl = alias.unsafeGetTensorImpl();
    auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    bool is_plain = impl->unsafe_storage().use_count() == 1 && !alias.is_conj() && !alias.is_neg() &&
        !impl->autograd_meta() && !impl->pyobj_slot()->load_pyobj() && !storage->pyobj_slot()->load_pyobj();
    if (!is_plain) return;
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, Device(c10::kCPU)));
    unused_.push_back(std::move(alias));
  }

 private:
  static constexpr size_t kKept = 16;
  inline static thread_local std::vector<at::Tensor> unused_;
};

// Does this kernel use the tensor too early (races.h)?
inline bool too_early(const at::Tensor& tensor, DeviceIndex device, bool writes, const std::string& by) {
  auto& stream = current_queue(device);
  if (!races::looked_for || !is_here(tensor) || !has_storage(tensor) || !tensor.numel()) return false;
  size_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += size_t((tensor.size(i) - 1) * tensor.stride(i));
  auto from = size_t(tensor.storage_offset()) * tensor.itemsize();
  races::Range range{tensor.storage().data(), from, from + (last + 1) * tensor.itemsize()};
  if (!stream.capture) return races::too_early(&stream, range, writes, by);
  stream.capture->use(range, writes, by);  // it happens when the graph is replayed
  return false;
}

// What is there before the other stream's kernel has come so far: nothing that anybody wrote. NaN, and -1.
inline at::Tensor unwritten(const at::Tensor& tensor) {
  auto bytes = tensor.storage().nbytes();
  c10::Storage storage(c10::Storage::use_byte_size_t{}, bytes, c10::GetAllocator(c10::kCPU)->allocate(bytes),
      c10::GetAllocator(c10::kCPU), true);
  std::memset(storage.mutable_data(), 0xFF, bytes);
  return over(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor);
}

// The memory of a CPU storage as one of `device`, where it is that device's (HostMemory); else an empty storage.
inline c10::Storage adopted(const c10::Storage& host, Device device) {
  auto* storage = host.unsafeGetStorageImpl();
  if (!DeviceMemory::is_of(storage->data_ptr(), device.index())) return {};
  auto bytes = host.use_count() == 1 ? storage->set_data_ptr(c10::DataPtr(nullptr, Device(c10::kCPU)))
                                     : bytes_of(host, device);
  bytes.unsafe_set_device(device);
  return c10::Storage(c10::Storage::use_byte_size_t{}, storage->nbytes(), std::move(bytes), &DeviceMemory::get(), true);
}

}  // namespace simulated
