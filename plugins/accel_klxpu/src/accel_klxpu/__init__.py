"""Kunlunxin XPUs for accel-core: the declaration of the backend `klxpu`, and the next
steps after known errors.

Importing this module imports neither torch nor torch_xmlir.

torch_xmlir is closed-source, and this plugin was not run on a P800. The facts come from
DeepSpeed 0.19.8 (deepspeed/accelerator/klxpu_accelerator.py), baidu/vLLM-Kunlun
(vllm_kunlun/platforms/kunlun.py), LMCache (lmcache/v1/platform/klx_xpu) and
xyDong0223/infer-forge-harness (openwiki/torch-xmlir, "the wiki" below), whose authors
analyzed a build for torch 2.9.
"""

from __future__ import annotations

import os

from accel_core import (
    Backend,
    Environment,
    Hardware,
    ProbeResult,
    ResourceRequest,
    TorchIntegration,
    Visibility,
    hookimpl,
)

__all__ = ["BACKEND"]

_INSTALL = "accel setup klxpu"
_DRIVER = "install Kunlunxin's driver (XRE), and check the driver with `xpu-smi`"
_DOCTOR = (
    "`python -m torch_xmlir --doctor` checks the driver, the runtime and torch_xmlir"
)

#: Patterns of error messages, each with the user's next step; the first match applies.
#: The libraries' names are those of XRE and XHPC in PaddlePaddle,
#: cmake/external/xpu.cmake.
_HINTS = (
    (
        r"lib(xpu\w*|xpuml|xft|xhpc|bkcl|cudart|cuda)[\w\-]*\.so",
        f"{_DRIVER}; {_DOCTOR}",
    ),
    (
        r"undefined symbol|_xmlirc\b|deregister cuda",
        (
            "`python -m torch_xmlir --doctor` checks the driver, the runtime and torch_xmlir, "
            "and `accel setup klxpu` shows how to install them"
        ),
    ),
    (r"initialize default context|device abnormal", f"{_DRIVER}; {_DOCTOR}"),
    (r"out of memory", "`xpu-smi` shows which processes hold the device's memory"),
)

BACKEND = Backend(
    name="klxpu",
    # DeepSpeed looks for it after supa and before cuda.
    priority=225,
    # torch_xmlir adds no device type: tensors have torch's type "cuda", and run on
    # Kunlunxin's kernels.
    device_type="cuda",
    vendor_import="torch_xmlir",
    accelerator="accel_klxpu.accelerator:KLXPUAccelerator",
    description="Kunlunxin XPUs, through torch_xmlir",
    url="https://www.kunlunxin.com/",
    install_hint=_INSTALL,
    # No version of torch_xmlir is required, because only the image's name contains the
    # torch release, and the distribution is called `torch-xmlir` or `xmlir`.
    requires=("torch>=2.6",),
    # BKCL under NCCL's name: torch_xmlir puts its own process group behind it (the
    # wiki, 07-distributed.md).
    communication_backend="nccl",
    compile_backend="inductor",
    hardware=Hardware(
        name="Kunlunxin XPU",
        platforms=("linux",),
        # https://paddlepaddle.org.cn/documentation/guides/hardware_support/xpu/install_cn.html.
        # /dev/xpuctrl is not a card.
        nodes=("/dev/xpu[0-9]*",),
        # Generation 2 (R200, R300), and the P800 under either of its vendor ids:
        # https://www.paddlepaddle.org.cn/documentation/zh/hardware_support/xpu/xpu-gen2_install_cn.html,
        # https://www.paddlepaddle.org.cn/documentation/zh/hardware_support/xpu/xpu-p800_install_cn.html
        pci_ids=(
            "1d22:3684",
            "1d22:3686",
            "1d22:3687",
            "1d22:3688",
            "1d22:3689",
            "2057:3686",
            "2057:3687",
            "2057:3688",
            "2057:3689",
        ),
        # FlagOpen's scripts print this file before they train; Kunlunxin publishes no
        # page about it.
        driver_file="/proc/kunlun/version",
        driver_step=_DRIVER,
    ),
    visibility=Visibility(
        # Not XPU_VISIBLE_DEVICES, with which torch_xmlir reportedly fails while it is
        # imported: FlagTree, third_party/xpu/docs/xpu3/how_to_write_kernel_skills.
        variables=("CUDA_VISIBLE_DEVICES",),
        grammar="indices",
    ),
    request=ResourceRequest(
        # https://opendatalab.github.io/MinerU/zh/usage/acceleration_cards/Kunlunxin
        docker="--device /dev/xpu0 --device /dev/xpuctrl",
        # Project-HAMi/HAMi, docs/kunlun-vxpu-support.md.
        kubernetes="kunlunxin.com/xpu",
    ),
    torch_integration=TorchIntegration(builds=("cuda",), takes_over="cuda"),
    environment=Environment(
        # DeepSpeed's.
        forward=("BKCL", "XPU", "XMLIR"),
    ),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `klxpu`, for Kunlunxin XPUs."""
    return BACKEND


@hookimpl
def accel_probe() -> ProbeResult | None:
    """Reject the backend if `DISABLE_XPYTORCH` turns torch_xmlir off.

    torch.cuda then uses NVIDIA's runtime. Every value except 0 turns torch_xmlir off.
    Source: the wiki, 02-import-hook.md.
    """
    value = os.environ.get("DISABLE_XPYTORCH", "").strip()
    if value in ("", "0"):
        return None
    return ProbeResult(
        False,
        f"DISABLE_XPYTORCH={value} turns torch_xmlir off",
        "unset DISABLE_XPYTORCH",
    )
