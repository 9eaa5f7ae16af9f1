"""Plugins on disk: one that declares a simulated device, so that accel_core is tested without the real ones,
and the real ones, with their own entry points, whatever is installed beside them."""

from pathlib import Path

from accel_core import TorchIntegration
from accel_testing import write_distribution
from accel_tests import plugins
from accel_tests.layouts import GROUP

#: The real plugins' folder; a source distribution of accel_core has none.
PLUGINS = Path(__file__).parents[3] / "plugins"
#: Tells a plugin that was put there by a test from the same one installed in the environment.
VERSION = "0.1.0+simulated"

PLUGIN = """
from accel_core import Backend, TorchIntegration, hookimpl

@hookimpl
def accel_backends():
    return [Backend(name={name!r}, priority=950, device_type={type!r}, vendor_import={package!r},
                    torch_integration=TorchIntegration(private_use1={private_use1}),
                    accelerator={accelerator!r})]
"""
#: torch.mps keeps its only generator under a name of its own.
MPS_ACCELERATOR = """
from accel_core.interface.torch_device import TorchAccelerator

class SimulatedMPS(TorchAccelerator):
    def default_generator(self, device_index):
        return self.device_module._get_default_mps_generator()
"""


def install_plugin(folder, vendor):
    """A plugin that declares the vendor's device under a name of its own, so that no other plugin has it."""
    name, module = f"simulated_{vendor.name}", f"accel_simulated_{vendor.name}"
    source = PLUGIN.format(
        name=name,
        type=vendor.name,
        package=vendor.package,
        private_use1=vendor.kind == "PrivateUse1",
        accelerator="simulated_mps_accelerator:SimulatedMPS"
        if vendor.name == "mps"
        else "accel_core.interface.torch_device:TorchAccelerator",
    )
    write_distribution(
        folder, f"accel-simulated-{vendor.name}", "1.0", {GROUP: {name: module}},
        {module: source, "simulated_mps_accelerator": MPS_ACCELERATOR},
    )  # fmt: skip
    return name


def install_real_plugin(folder, name):
    """The plugin `accel-<name>`: a link to its sources, and metadata with the entry points it declares."""
    home, module = PLUGINS / f"accel_{name}", f"accel_{name}"
    (folder / module).symlink_to(home / "src" / module, target_is_directory=True)
    declared = (
        (home / "pyproject.toml")
        .read_text()
        .partition('[project.entry-points."accel.backends"]')[2]
    )
    lines = declared.strip().partition("\n\n")[0].replace('"', "").splitlines()
    write_distribution(
        folder,
        f"accel-{name}",
        VERSION,
        {GROUP: dict(line.split(" = ") for line in lines)},
    )


def install_strangers(folder, name, distribution="", modules=None, **fields):
    """A plugin for a simulated device, as its vendor publishes it; `fields` are those of its `Backend`."""
    kind = {
        "device_type": name,
        "vendor_import": f"torch_{name}",
        "torch_integration": TorchIntegration(private_use1=True),
    }
    source = plugins.declaring(
        plugins.arguments(name, 950, **{**kind, "accelerator": "", **fields})
    )
    distribution = distribution or f"accel-{name}"
    module = distribution.replace("-", "_")
    groups, sources = {GROUP: {name: module}}, {module: source, **(modules or {})}
    return write_distribution(folder, distribution, "1.0", groups, sources)
