"""Source of plugins, of vendor packages and of the accelerators they bring, all of them simulated."""

HEAD = """import accel_core
from accel_core import (
    Backend, Environment, ResourceRequest, Hardware, ProbeResult, TorchIntegration, Visibility, hookimpl
)
"""

#: An accelerator over the simulated device; what `device_count()` does is the argument.
ACCELERATOR = """
from accel_core import Accelerator

class Simulated(Accelerator):
    def device_count(self):
        {count}
    def current_device(self):
        return 0
"""


def declaring(*backends):
    """A plugin that declares `backends`, each given as the arguments of `Backend(...)`."""
    listed = ", ".join(f"Backend({arguments})" for arguments in backends)
    return f"{HEAD}\n@hookimpl\ndef accel_backends():\n    return [{listed}]\n"


def arguments(name, priority=500, **more):
    """Arguments of `Backend(...)`; the vendor import is a module that is always there."""
    given = {
        "name": name,
        "priority": priority,
        "device_type": name.partition(".")[0],
        "vendor_import": "json",
        "accelerator": "accel_sim_device:Simulated",
        **more,
    }
    return ", ".join(f"{key}={value!r}" for key, value in given.items())


def hook(name, parameters, body):
    """One more hook for a plugin's source."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"\n@hookimpl\ndef {name}({parameters}):\n{lines}\n"


#: A hook by which a plugin says that its device is not there.
NO_DEVICE = hook(
    "accel_probe",
    "backend, others",
    "return ProbeResult(False, 'nothing on the bus', devices=0)",
)


def takes_private_use1(name):
    """As PyTorch's own registration does: the second one is refused."""
    return (
        "import torch\n"
        "if torch._C.private_use1 != 'privateuseone': raise RuntimeError('already set')\n"
        f"torch._C.private_use1 = {name!r}"
    )
