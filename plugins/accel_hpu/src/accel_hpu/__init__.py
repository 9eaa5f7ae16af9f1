"""Intel Gaudi devices for accel-core: what the backend `hpu` is, and what its known
failures mean.

Importing this module imports neither torch nor Habana's bridge, and sets no variable.
"""

from __future__ import annotations

from accel_core import (
    Backend,
    Environment,
    Hardware,
    ResourceRequest,
    Visibility,
    hookimpl,
)

__all__ = ["BACKEND"]


#: What an error's text says, and what the user can do about it; the first that fits
#: counts.
_HINTS = (
    (
        r"not supported in lazy mode|'nonetype' object has no attribute 'startswith'",
        (
            "set PT_HPU_LAZY_MODE=0 before torch is imported: lazy mode needs Habana's own torch"
        ),
    ),
    (
        (
            r"compile-time major/minor pytorch version|undefined "
            r"symbol|required_version\.txt"
        ),
        "bridge and torch have to be of one Gaudi release: accel setup hpu",
    ),
    (
        (
            r"no module named 'habana_frameworks\.torch|no module named "
            r"'habana_frameworks'"
        ),
        "accel setup hpu",
    ),
    (
        r"lib(synapse|hcl|hlthunk|scal|habana)[\w\-.]*\.so",
        (
            "install Gaudi's driver and runtime (habanalabs-graph); `hl-smi` shows when they work"
        ),
    ),
    (
        (
            r"device acquire failed|no devices? "
            r"(found|available)|synstatus.*(busy|acquire)"
        ),
        (
            "another process holds the device: `hl-smi` shows which; one process can use one module"
        ),
    ),
    (
        r"invalid literal for int\(\)|device modules|visible_modules",
        (
            "HABANA_VISIBLE_MODULES takes module ids from 0 to 7, each once: `hl-smi "
            "-Q index,module_id -f csv`"
        ),
    ),
    (
        r"out of memory|allocation failed",
        "`hl-smi` shows which processes hold the device's memory",
    ),
)

BACKEND = Backend(
    name="hpu",
    priority=400,
    device_type="hpu",
    # Not `….torch.hpu`: this one registers torch.hpu, the backend hccl and the compiler
    # as well.
    vendor_import="habana_frameworks.torch",
    accelerator="accel_hpu.accelerator:HPUAccelerator",
    description="Intel Gaudi accelerators",
    url="https://docs.habana.ai/",
    install_hint="accel setup hpu",
    # Habana's media packages share the namespace `habana_frameworks`. 1.19 is the
    # oldest bridge we have read.
    requires=("torch>=2.6", "habana-torch-plugin>=1.19"),
    communication_backend="hccl",
    compile_backend="hpu_backend",
    hardware=Hardware(
        name="Intel Gaudi",
        platforms=("linux",),
        # /dev/accel is the kernel's folder for every maker's accelerators, so there the
        # PCI id must tell. Unverified: /dev/hl*, older drivers' name, is in no source
        # of Habana's that we have read.
        nodes=("/dev/hl[0-9]*",),
        shared_nodes=("/dev/accel/accel[0-9]*",),
        pci_ids=("1da3",),
        # HabanaAI/gohlml, hlml.go, `HLModulePath`; the package is the one of Gaudi's
        # installation guide.
        driver_file="/sys/module/habanalabs",
        driver_step=(
            "install Gaudi's driver (habanalabs-dkms); `hl-smi` shows when it works"
        ),
    ),
    visibility=Visibility(variables=("HABANA_VISIBLE_MODULES",), grammar="modules"),
    request=ResourceRequest(
        # https://docs.habana.ai/en/latest/Installation_Guide/Additional_Installation/Docker_Installation.html
        docker="--runtime=habana -e HABANA_VISIBLE_DEVICES=all",
        # https://docs.habana.ai/en/latest/Installation_Guide/Additional_Installation/Kubernetes_Installation/
        # Ray 2.60.0, ray/_private/accelerators/hpu.py.
        kubernetes="habana.ai/gaudi",
        ray="HPU",
        ray_noset="RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES",
    ),
    environment=Environment(
        # Neither HABANA_VISIBLE_* nor HLS_MODULE_ID: which modules a process has is
        # each node's own affair.
        forward=(
            "PT_HPU",
            "PT_HABANA",
            "PT_ENABLE",
            "HCCL",
            "HABANA_LOGS",
            "HABANA_PROFILE",
            "SYNAPSE",
        ),
        # What DeepSpeed sets when it builds its accelerator.
        defaults=(
            "PT_HPU_LAZY_ACC_PAR_MODE=0",
            "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES=0",
        ),
    ),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the one backend of this plugin."""
    return BACKEND
