"""Intel Gaudi accelerators for accel-core: the declaration of the backend `hpu`, and the
next steps after known errors.

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


#: Patterns of error messages, each with the user's next step; the first match applies.
_HINTS = (
    (
        r"not supported in lazy mode|'nonetype' object has no attribute 'startswith'",
        (
            "set PT_HPU_LAZY_MODE=0 before torch is imported: lazy mode needs Habana's build of torch"
        ),
    ),
    (
        (
            r"compile-time major/minor pytorch version|undefined "
            r"symbol|required_version\.txt"
        ),
        "install Habana's bridge and torch from the same Gaudi release: run `accel setup hpu`",
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
            "install Gaudi's driver and runtime (habanalabs-graph), and check both with `hl-smi`"
        ),
    ),
    (
        (
            r"device acquire failed|no devices? "
            r"(found|available)|synstatus.*(busy|acquire)"
        ),
        (
            "stop the process that uses the device (`hl-smi` shows the process), because "
            "only one process at a time can use a Gaudi module"
        ),
    ),
    (
        r"invalid literal for int\(\)|device modules|visible_modules",
        (
            "set HABANA_VISIBLE_MODULES to different module ids from 0 to 7, which `hl-smi "
            "-Q index,module_id -f csv` lists"
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
    # Not `….torch.hpu`: importing this package also registers torch.hpu, the
    # communication backend hccl and the compiler.
    vendor_import="habana_frameworks.torch",
    accelerator="accel_hpu.accelerator:HPUAccelerator",
    description="Intel Gaudi accelerators",
    url="https://docs.habana.ai/",
    install_hint="accel setup hpu",
    # The distribution, because Habana's media packages share the namespace
    # `habana_frameworks`. 1.19 is the oldest bridge whose source was reviewed.
    requires=("torch>=2.6", "habana-torch-plugin>=1.19"),
    communication_backend="hccl",
    compile_backend="hpu_backend",
    hardware=Hardware(
        name="Intel Gaudi",
        platforms=("linux",),
        # /dev/accel is the kernel's folder for accelerators of every vendor, so the PCI
        # id decides. Unverified: /dev/hl*, the nodes of older drivers, is in none of
        # Habana's sources that were reviewed.
        nodes=("/dev/hl[0-9]*",),
        shared_nodes=("/dev/accel/accel[0-9]*",),
        pci_ids=("1da3",),
        # HabanaAI/gohlml, hlml.go, `HLModulePath`; the package's name is in Gaudi's
        # installation guide.
        driver_file="/sys/module/habanalabs",
        driver_step=(
            "install Gaudi's driver (habanalabs-dkms), and check the driver with `hl-smi`"
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
        # Neither HABANA_VISIBLE_* nor HLS_MODULE_ID: each node has its own modules.
        forward=(
            "PT_HPU",
            "PT_HABANA",
            "PT_ENABLE",
            "HCCL",
            "HABANA_LOGS",
            "HABANA_PROFILE",
            "SYNAPSE",
        ),
        # DeepSpeed sets these when it builds its accelerator.
        defaults=(
            "PT_HPU_LAZY_ACC_PAR_MODE=0",
            "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES=0",
        ),
    ),
    hints=_HINTS,
)


@hookimpl
def accel_backends() -> Backend:
    """Return the declaration of the backend `hpu`, for Intel Gaudi."""
    return BACKEND
