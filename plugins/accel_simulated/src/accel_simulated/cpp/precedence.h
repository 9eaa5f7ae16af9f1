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

inline std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// Composites of the three layouts that a backend fallback comes after.
inline bool has_composite(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  for (auto key : {Key::CompositeImplicitAutograd, Key::CompositeExplicitAutograd,
           Key::CompositeExplicitAutogradNonFunctional})
    if (op.hasKernelForDispatchKey(key)) return true;
  return false;
}

template <c10::DispatchKey Here, c10::DispatchKey Host>
void prefer_host_kernels(torch::Library& library) {
  for (auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || op->hasKernelForDispatchKey(Here)) continue;
    auto full = full_name(name);
    bool own = op->hasKernelForDispatchKey(Host) && has_composite(*op);
    if (own || (Host == c10::DispatchKey::CPU && kCompositesOfHost.count(full)))
      library.impl(full.c_str(), by_host<Host>());
  }
}

}  // namespace simulated
