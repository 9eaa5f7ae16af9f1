// Kernels that the device has itself: making, copying and reshaping tensors, and those CPU has not.
#pragma once

#include <ATen/ops/as_strided_native.h>

#include "guard.h"
#include "host.h"

namespace simulated {

using Ints = c10::IntArrayRef;
using MaybeTensor = std::optional<at::Tensor>;
using Tensors = std::vector<at::Tensor>;

const c10::DispatchKeySet kKeys(c10::DispatchKey::SIM);

inline at::ScalarType scalar_type_or_default(std::optional<at::ScalarType> dtype) {
  return dtype.value_or(c10::typeMetaToScalarType(c10::get_default_dtype()));
}

// As in pytorch, aten/src/ATen/mps/EmptyTensor.cpp; every tensor on the device begins in one of the next two, or
// in on_device.
inline void check_dtype(at::ScalarType dtype) {
  TORCH_CHECK_TYPE(!kIsMps || dtype != at::kDouble,
      "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.");
}

inline at::Tensor empty(Ints size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pinned.value_or(false), "only dense CPU tensors can be pinned");
  c10::DeviceGuard guard(Device(kType, index_of(device.value_or(Device(kType)))));
  check_dtype(scalar_type_or_default(dtype));
  return at::detail::empty_generic(size, &DeviceMemory::get(), kKeys, scalar_type_or_default(dtype), format);
}

inline at::Tensor empty_strided(Ints size, Ints stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(Device(kType, index_of(device.value_or(Device(kType)))));
  check_dtype(scalar_type_or_default(dtype));
  return at::detail::empty_strided_generic(size, stride, &DeviceMemory::get(), kKeys, scalar_type_or_default(dtype));
}

// What a kernel made on the host, on the device: the same memory where it is the device's, else a copy.
inline at::Tensor on_device(const at::Tensor& host, Device device) {
  if (!host.defined() || is_here(host)) return host;
  check_dtype(host.scalar_type());
  if (host.is_nested()) return nested_with(host, [device](const at::Tensor& part) { return on_device(part, device); });
  if (!has_storage(host)) {
    auto made = new_sparse(host, device);
    assign_sparse(made, host, [device](const at::Tensor& part) { return on_device(part, device); });
    return made;
  }
  if (auto storage = adopted(host.storage(), device)) return over(std::move(storage), kKeys, host);
  c10::DeviceGuard guard(device);
  auto made = empty_strided(host.sizes(), host.strides(), host.scalar_type(), {}, device, {});
  on_host(made).copy_(host);
  return made;
}

// Kernels run when they are called, once all that their stream was given before is done.
inline Recording* begin_kernel(DeviceIndex device) {
  auto& stream = current_queue(device);
  stream.synchronize();
  meet_faults(stream);
  return stream.capture.get();
}

// A kernel made of CPU operators: `compute` gets host aliases of `inputs` and gives new host tensors.
inline Tensors emulate(const char* name, const Tensors& inputs, std::function<Tensors(const Tensors&)> compute) {
  auto device = inputs.at(0).device();
  auto* recording = begin_kernel(device.index());
  at::AutoDispatchBelowADInplaceOrView below;
  Tensors aliases, made, results;
  for (auto& input : inputs) {
    bool early = too_early(input, device.index(), false, name);
    aliases.push_back(early ? unwritten(input) : on_host(input));
  }
  {
    HostMemory::Lend lend(device.index());
    made = compute(aliases);
  }
  for (auto& result : made) results.push_back(on_device(result, device));
  for (auto& result : results) too_early(result, device.index(), true, name);
  if (recording) {
    Tensors outputs;
    for (auto& result : results) outputs.push_back(on_host(result));
    recording->add(name, [=] {
      auto again = compute(aliases);
      for (size_t i = 0; i < outputs.size(); ++i)
        if (outputs[i].defined()) outputs[i].copy_(again[i]);
    });
  }
  return results;
}

// Copying

inline bool reachable_later(const at::Tensor& tensor) {
  return is_here(tensor) || PinnedMemory::get().holds(tensor.data_ptr());
}

// Where races are looked for, the host sees the copy when it has waited for it, and nothing before.
inline at::Tensor copy_late(const at::Tensor& from, const at::Tensor& to, Queue& stream, bool early) {
  at::AutoDispatchBelowADInplaceOrView below;
  at::NoGradGuard no_grad;
  auto value = at::empty_like(to, to.options().pinned_memory(false));
  to.copy_(unwritten(to));
  races::postpone(&stream, to, value);
  stream.push([value, source = early ? unwritten(from) : on_host(from)]() mutable {
    at::AutoDispatchBelowADInplaceOrView below;
    at::NoGradGuard no_grad;
    value.copy_(source);
  });
  return to;
}

inline at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  auto device = is_here(to) ? to.device().index() : from.device().index();
  bool stays = is_here(from) && is_here(to);
  auto& stream = current_queue(device);
  auto& other = stays ? current_queue(from.device().index()) : stream;
  races::met(&stream, &other);  // a copy between devices waits for both their streams
  if (!is_here(from))
    if (auto done = races::done_before(&stream, from); !done.empty()) stream.push([done] { races::land(done); });
  bool early = is_here(from) ? too_early(from, device, false, "aten::copy_")
                             : !stream.capture && races::any_late && races::reads_too_early("aten::copy_", from);
  bool undone = too_early(to, device, true, "aten::copy_");
  auto copy = [source = early ? unwritten(from) : on_host(from),
                  target = undone ? unwritten(to) : on_host(to)]() mutable {
    at::AutoDispatchBelowADInplaceOrView below;
    at::NoGradGuard no_grad;
    target.copy_(source);
  };
  bool later = non_blocking && reachable_later(from) && reachable_later(to);
  delay(stream);
  if (races::looked_for && later && !is_here(to) && !stream.capture) return copy_late(from, to, stream, early);
  if (stream.capture) {
    if (!stays && !later) check_not_capturing(stream, "a copy that the host waits for");
    if (is_here(to)) stream.capture->save(to.storage());
    stream.synchronize();
    copy();
    stream.capture->add("aten::copy_", copy);
  } else if (later) {
    stream.push(copy);
    // Gaudi orders dependent work across its streams by itself.
    if (stays && kType == c10::DeviceType::HPU) stream.synchronize();
  } else {
    stays ? stream.synchronize() : wait_on_host(stream);
    if (&other != &stream) other.synchronize();
    copy();
  }
  return to;
}

inline at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  copy_from(from.sizes() == to.sizes() ? from : from.expand_as(to), to, non_blocking);
  return to;
}

inline at::Scalar local_scalar(const at::Tensor& tensor) {
  auto& stream = current_queue(tensor.device().index());
  check_not_capturing(stream, "reading a value on the host");
  bool early = too_early(tensor, tensor.device().index(), false, "reading a value");
  wait_on_host(stream);
  return (early ? unwritten(tensor) : on_host(tensor)).item();
}

inline at::Tensor nested_to_copy(const at::Tensor& nested, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<Device> device, std::optional<bool>, bool non_blocking, std::optional<at::MemoryFormat>) {
  auto options = nested.options().dtype(dtype.value_or(nested.scalar_type())).device(device.value_or(nested.device()));
  return nested_with(nested, [&](const at::Tensor& numbers) { return numbers.to(options, non_blocking, true); });
}

// Shapes and storages

inline at::Tensor as_strided(const at::Tensor& tensor, Ints size, Ints stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, size, stride, offset);
}

inline const at::Tensor& resize_(const at::Tensor& tensor, Ints size, std::optional<at::MemoryFormat> format) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->sizes() == size && !format) return tensor;  // its strides stay
  auto bytes = size_t(c10::multiply_integers(size) + tensor.storage_offset()) * tensor.itemsize();
  if (bytes > impl->unsafe_storage().nbytes()) grow(impl->unsafe_storage(), bytes);
  impl->set_sizes_contiguous(size);
  if (format.has_value() && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return tensor;
}

inline at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, int64_t offset, Ints size, Ints stride) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  auto contiguous = stride.empty() && !size.empty();
  impl->set_sizes_and_strides(size, contiguous ? Ints(at::detail::defaultStrides(size)) : stride, offset);
  return tensor;
}
inline at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& source) {
  return set_storage(tensor, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}
inline at::Tensor& set_source(at::Tensor& tensor, at::Storage source) {
  auto elements = int64_t(source.nbytes() / tensor.itemsize());
  return set_storage(tensor, std::move(source), 0, {elements}, {});
}

inline void record_stream(at::Tensor& tensor, at::Stream stream) {
  DeviceMemory::get().recordStream(tensor.storage().data_ptr(), stream);
}

// May `tensor.data = from`? PyTorch says so of its own device types, so that `module.to(device)` keeps the
// module's parameters, which an optimizer may hold already. Vendors of others answer for themselves.
inline bool data_fits(const at::Tensor& tensor, const at::Tensor& from) {
  auto plain = [](const at::Tensor& each) {
    return each.layout() == at::kStrided && (each.is_cpu() || each.device().type() == kType);
  };
  return plain(tensor) && plain(from);
}

}  // namespace simulated
