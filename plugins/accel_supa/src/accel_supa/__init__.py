"""Biren GPUs for accel-core: what the backend `supa` is, and the next step after its known errors.

Importing this module imports neither torch nor torch_supa.
"""

from __future__ import annotations

from accel_core import Backend, hint_for, hookimpl

__all__ = ["BACKEND"]

_ENVIRONMENT = "source /usr/local/birensupa/all/latest/scripts/brsw_set_env.sh"

BACKEND = Backend(
    name="supa",
    priority=250,
    device_type="supa",
    vendor_import="torch_supa",
    accelerator="accel_supa.accelerator:SUPAAccelerator",
    description="Biren GPUs, through torch_supa",
    url="https://github.com/BIRENSUPA/torch-supa",
    install_hint="install the torch_supa wheel for your torch from Biren's SDK",
    # torch.accelerator, on which accel-core builds, is there from 2.6 on; torch_supa's fourth number is
    # the torch it was built for.
    requires=("torch>=2.6", "torch-supa>=1.0.0.20600"),
    platforms=("linux",),
    # The bus tells nothing: Biren's PCI ids have no public source.
    device_nodes=("/dev/biren/card_[0-9]*",),
    visible_devices=("SUPA_VISIBLE_DEVICES",),
    visible_devices_grammar="indices",
    export_envs=("BCCL", "BIREN", "SUPA", "BRTB", "LD_LIBRARY", "PATH"),
    communication_backend="bccl",
    compile_backend="inductor",
    private_use1=True,
    # torch's autoload of torch_supa puts torch.supa's functions into torch.cuda.
    impersonates="cuda",
)


@hookimpl
def accel_backends() -> Backend:
    """The one backend of this plugin."""
    return BACKEND


#: What an error's text says, and what the user can do about it; the first that fits counts.
_HINTS = (
    (r"lib(supa|su(blas|dnn|fft|rand|da)|bccl|biren|cu)[\w\-]*\.so|libsupart functions", _ENVIRONMENT),
    (r"undefined symbol|torch_supa\._c\b",
     "install the torch_supa made for your torch: 1.0.0.21000 is for torch 2.10.0"),
    (r"privateuse1|already been (set|registered)",
     "a process has room for one vendor: set DS_ACCELERATOR=supa before anything imports another's package"),
    (r"re-initialize supa in forked",
     "use the start method 'spawn', or do not touch the device before the fork"),
    (r"out of memory", "`brsmi` shows which processes hold the device's memory"),
)  # fmt: skip


@hookimpl
def accel_explain(backend: Backend, error: BaseException) -> str | None:
    """The next step after a known error of torch_supa, of the driver or of a library."""
    return hint_for(error, _HINTS)
