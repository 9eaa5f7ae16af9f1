// Which kernels win: CPU's own, wherever it has one.
#pragma once

#include <set>

#include "fallback.h"

namespace simulated {

// PyTorch has composites for device types without a kernel of their own; beside CPU's kernel they round
// otherwise, lay results out otherwise, and cost another pass through the dispatcher. These it has no CPU
// kernel for, and composites that ask for the device type.
inline const std::set<std::string> kCompositesOfHost = {
    "aten::mode.values", "aten::conj_physical_", "aten::linalg_lstsq", "aten::linalg_lstsq.out"};

// The kernels of one layout, and the library that holds ours for it.
template <c10::DispatchKey Here, c10::DispatchKey Host>
struct Precedence {
  torch::Library library{torch::Library::IMPL, "aten", Here, __FILE__, __LINE__};

  void take(const c10::OperatorHandle& op, const std::string& name, bool anyway) {
    if (!op.hasKernelForDispatchKey(Here) && (anyway || op.hasKernelForDispatchKey(Host)))
      library.impl(name.c_str(), by_host<Host>());
  }
};

// Composites come before a backend's fallback.
inline bool has_composite(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  return op.hasKernelForDispatchKey(Key::CompositeExplicitAutogradNonFunctional) ||
      op.hasKernelForDispatchKey(Key::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(Key::CompositeImplicitAutograd);
}

inline void prefer_host_kernels() {
  using Key = c10::DispatchKey;
  static Precedence<Key::SIM, Key::CPU> dense;
  static Precedence<Key::SIM_JOIN(Sparse, SIM), Key::SparseCPU> coo;
  static Precedence<Key::SIM_JOIN(SparseCsr, SIM), Key::SparseCsrCPU> compressed;
  static Precedence<Key::SIM_JOIN(NestedTensor, SIM), Key::NestedTensorCPU> nested;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (auto& each : dispatcher.getAllOpNames()) {
    if (each.name.compare(0, 6, "aten::")) continue;
    auto op = dispatcher.findSchema(each);
    if (!op || !has_composite(*op)) continue;
    auto name = each.overload_name.empty() ? each.name : each.name + "." + each.overload_name;
    dense.take(*op, name, kCompositesOfHost.count(name));
    coo.take(*op, name, false);
    compressed.take(*op, name, false);
    nested.take(*op, name, false);
  }
}

}  // namespace simulated
