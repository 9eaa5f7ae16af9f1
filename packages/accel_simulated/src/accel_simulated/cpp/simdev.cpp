// A simulated accelerator for tests on a machine without one. It is not a device, and says so by name.
//
// Devices are host memory with a limit; kernels are CPU's; streams, events, generators, pinned memory,
// autocast and graphs are real. Built by ../build.py, loaded with ctypes: the entry points are plain C and
// depend on no version of Python.
#include <ATen/autocast_mode.h>

#include <future>

#include "composites.h"
#include "gloo.h"
#include "gpu_only.h"
#include "graph.h"
#include "hooks.h"
#include "layers.h"
#include "precedence.h"
#include "profiler.h"
#include "timer.h"

SIM_LIBRARY(aten, SIM, m) {
  using namespace simulated;
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_.source_Storage", TORCH_FN(set_source));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(data_fits));
  m.impl("convolution", TORCH_FN(convolution));
  m.impl("convolution_backward", TORCH_FN(convolution_backward));
  m.impl("native_dropout_backward", TORCH_FN(dropout_backward));
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
  register_recurrent(m);
  register_attention(m);
  register_gpu_only(m);
}

// Operators, as they may raise: what is called before each kernel that inductor generated, and the resizing of
// built-in device types' storages, which is compiled out of the CPU wheel.
TORCH_LIBRARY(accel_simulated, m) {
  m.def("resize_storage(Tensor(a!) of, int bytes) -> ()", [](const at::Tensor& of, int64_t bytes) {
    simulated::current_queue(of.device().index()).synchronize();
    simulated::grow(of.storage(), size_t(bytes));
  });
  m.def("begin_kernel(int device) -> ()", [](int64_t device) {
    simulated::check_index(device);
    auto& stream = simulated::current_queue(c10::DeviceIndex(device));
    simulated::check_not_capturing(stream, "a kernel of torch.compile's");
    simulated::begin_kernel(c10::DeviceIndex(device));
  });
}

SIM_LIBRARY(_, SIM, m) { m.fallback(simulated::by_host<c10::DispatchKey::CPU>()); }
SIM_LIBRARY(_, SIM_JOIN(Sparse, SIM), m) { m.fallback(simulated::by_host<c10::DispatchKey::SparseCPU>()); }
SIM_LIBRARY(_, SIM_JOIN(NestedTensor, SIM), m) { m.fallback(simulated::by_host<c10::DispatchKey::NestedTensorCPU>()); }
SIM_LIBRARY(_, SIM_JOIN(SparseCsr, SIM), m) { m.fallback(simulated::by_host<c10::DispatchKey::SparseCsrCPU>()); }

SIM_LIBRARY(aten, SIM_JOIN(Autograd, SIM), m) {
  simulated::register_recurrent(m);
  simulated::register_attention(m);
}

#ifdef SIM_AUTOCAST  // PyTorch brings the rules of the other built-in types
SIM_LIBRARY(_, SIM_JOIN(Autocast, SIM), m) { m.fallback(torch::CppFunction::makeFallthrough()); }

namespace at::autocast {
SIM_LIBRARY(aten, SIM_JOIN(Autocast, SIM), m) {
  KERNEL(simulated::kType, mm, lower_precision_fp)
  KERNEL(simulated::kType, addmm, lower_precision_fp)
  KERNEL(simulated::kType, bmm, lower_precision_fp)
  KERNEL(simulated::kType, baddbmm, lower_precision_fp)
  KERNEL(simulated::kType, matmul, lower_precision_fp)
  KERNEL(simulated::kType, linear, lower_precision_fp)
  KERNEL(simulated::kType, conv1d, lower_precision_fp)
  KERNEL(simulated::kType, conv2d, lower_precision_fp)
  KERNEL(simulated::kType, scaled_dot_product_attention, lower_precision_fp)
  KERNEL(simulated::kType, layer_norm, fp32)
  KERNEL(simulated::kType, mse_loss, fp32)
  KERNEL(simulated::kType, nll_loss, fp32)
}
}  // namespace at::autocast
#endif

namespace {
// Of HPU PyTorch has a kernel that only refuses, and warns that ours replaces it.
void copy_nested() {
  struct : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  static torch::Library library(
      torch::Library::IMPL, "aten", c10::DispatchKey::SIM_JOIN(NestedTensor, SIM), __FILE__, __LINE__);
  library.impl("_to_copy", TORCH_FN(simulated::nested_to_copy));
}

std::mutex gates_mutex;
std::vector<std::shared_ptr<std::promise<void>>> gates;
}  // namespace

struct _object;  // PyObject, without Python's headers
_object* THPGenerator_initDefaultGenerator(const at::Generator&);

// `sim_init` is called before the first tensor, `sim_named` when the device type has its name. None raises.
extern "C" {
void sim_init(int (*count)()) {
  static bool done = false;
  simulated::device_count.find = count;
  if (std::exchange(done, true)) return;
  c10::SetAllocator(simulated::kType, &simulated::device_memory());
  simulated::HostMemory::install();
  simulated::prefer_host_kernels();
  simulated::choose_attention_as_host();
  simulated::races::look_at_the_host();
  copy_nested();
  simulated::serve_profiler();
  if (simulated::kType == c10::DeviceType::CUDA) simulated::serve_gloo();
  if (!simulated::plain && !simulated::kIsMps) {  // torch's native_functions.yaml has none for Metal
    static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::SIM, __FILE__, __LINE__);
    library.impl("record_stream", TORCH_FN(simulated::record_stream));
  }
  if (!simulated::plain) at::setHostAllocator(simulated::kType, &simulated::PinnedMemory::get());
  if (!simulated::registered_early) simulated::register_hooks_as<simulated::HooksInterface>();
}

void sim_named() {
  if (!simulated::plain && !simulated::kIsMps) simulated::register_graphs();
}

// Before `sim_init`: a device with one queue, no events, no pinned memory, no `record_stream`, no graphs.
void sim_be_plain() { simulated::plain = true; }

void sim_set_limit(int device, size_t bytes) { simulated::memory_limits[device] = bytes; }

void sim_lock_pages(void* address, size_t bytes) { simulated::PinnedMemory::get().lock(address, bytes); }
void sim_unlock_pages(void* address) { simulated::PinnedMemory::get().unlock(address); }

void sim_draw_from_host(int yes) { simulated::draw_from_host = yes; }

void sim_set_fraction(int device, double fraction) {
  simulated::DeviceMemory::get().set_fraction(c10::DeviceIndex(device), fraction);
}

// What goes wrong from now on, by the numbers of faults.h; `at` 0 takes the request back.
void sim_request(int fault, long at, long value) {
  auto& request = simulated::requests[fault];
  request.at = 0;
  request.seen = 0;
  request.value = value;
  request.at = at;
  if (fault == simulated::kLost && !at) simulated::is_lost = false;
  if (fault == simulated::kCount && !at) simulated::device_count = int(value);
}

int sim_device_count() { return simulated::device_count; }

// Keep a stream busy for a while.
void sim_sleep(int device, long stream, int milliseconds) {
  auto sleep = [milliseconds] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  simulated::queue(stream, c10::DeviceIndex(device)).push(sleep);
}

// Stop a stream until it is released: what is queued behind is late for as long as a test likes.
long sim_hold(int device, long stream) {
  auto gate = std::make_shared<std::promise<void>>();
  simulated::queue(stream, c10::DeviceIndex(device)).push([gate] { gate->get_future().wait(); });
  std::lock_guard<std::mutex> lock(gates_mutex);
  gates.push_back(gate);
  return long(gates.size() - 1);
}

void sim_release(long hold) {
  std::lock_guard<std::mutex> lock(gates_mutex);
  if (auto gate = std::exchange(gates.at(hold), nullptr)) gate->set_value();
}

int sim_is_capturing() { return bool(simulated::current_queue(simulated::selected_device).capture); }

long sim_new_pool() { return long(simulated::next_pool().first); }

// How many operators the fallback has run: proof that work went through the device.
long sim_fallbacks() { return simulated::fallback_calls; }

_object* sim_default_generator(int device) {
  return THPGenerator_initDefaultGenerator(simulated::default_generator(c10::DeviceIndex(device)));
}
}
