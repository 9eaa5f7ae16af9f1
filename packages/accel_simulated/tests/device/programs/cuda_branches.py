"""Run code in torch that only runs on CUDA, and print the results by name."""

import json

import torch
from torch._native.common_utils import check_native_jit_disabled
from torch.utils._triton import has_triton


def result_of(call):
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


x = torch.ones(2, 3, device="cuda")
# These calls must not raise.
torch.compile(lambda x: x * 2, backend="aot_eager")(x)
torch._dynamo.reset()
torch.cuda.ipc_collect()
torch.cuda.memory._record_memory_history()
torch.cuda.profiler.start()
torch.backends.cuda.preferred_linalg_library("cusolver")
torch.backends.cuda.preferred_blas_library("cublaslt")
torch.backends.cuda.cufft_plan_cache.clear()
torch.cuda.set_sync_debug_mode("warn")

jiterated = torch.cuda.jiterator._create_jit_fn(
    "template <typename T> T f(T x) { return x; }"
)
print(
    json.dumps(
        {
            "version": [int(number) for number in torch.version.cuda.split(".")],
            "config names the simulation": "simulated: no library of the vendor's"
            in torch.__config__.show(),
            "Triton kernels are disabled": check_native_jit_disabled(),
            "has Triton": has_triton(),
            "sync debug mode": torch.cuda.get_sync_debug_mode(),
            "allocator": torch.cuda.get_allocator_backend(),
            "has _cuda_getDeviceCount": hasattr(torch._C, "_cuda_getDeviceCount"),
            "has _cuda_getCurrentBlasHandle": hasattr(
                torch._C, "_cuda_getCurrentBlasHandle"
            ),
            "blas handle": result_of(torch.cuda.current_blas_handle),
            "jiterated function": result_of(lambda: jiterated(x)),
            "PCI bus": result_of(
                lambda: torch.cuda.get_device_properties(0).pci_bus_id
            ),
        }
    )
)
