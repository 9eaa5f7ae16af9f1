"""A device that only an installed plugin declares is simulated under the declared names."""

import json
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.children import clean_environment, run_python
from accel_tests.plugins import declaring

PROGRAMS = Path(__file__).with_name("programs")

#: Name and device type differ, the package lies in another, and its distribution is required.
DECLARED = (
    "name='zing', priority=500, device_type='zpu', vendor_import='zing_sdk.torch', "
    "torch_integration=TorchIntegration(private_use1=True), requires=('zing-sdk>=1.2,<2', 'torch>=2.6'), "
    "visibility=Visibility(variables=('ZING_DEVICES',)), "
    "communication_backend='zccl'"
)


@pytest.fixture
def environ(tmp_path, built):
    """The variables of a process in which the plugin accel-zing is installed."""
    built("acme")
    plugin = install(tmp_path, "zing", accel_zing=declaring(DECLARED))
    return clean_environment(PYTHONPATH=str(plugin), ZING_DEVICES="0,2")


def install(folder, name, **modules):
    """Install a plugin with an entry point `name` for the module `accel_<name>`; return the folder."""
    groups = {"accel.backends": {name: f"accel_{name}"}}
    return layouts.dist_info(folder, f"accel-{name}", "1.0", groups, modules)


def simulate(environ, *words):
    return run_python(["-m", "accel_core", "simulate", *words], environ)


def test_the_device_has_the_names_of_the_declaration(environ):
    program = str(PROGRAMS / "declared_device.py")
    ended = simulate(environ, "zing:3", "--", "python", program).succeeded()
    reported = json.loads(ended.stdout)
    text = reported.pop("repr")
    assert text.endswith(", simulated: zpu:3 by accel-simulated 0.1.0>")
    assert reported == {
        "name": "zing",
        "device type": "zpu",
        "visible devices": 2,
        "sum of ones": 2.0,
        "package is imported": True,
        "version of the package": "1.2",
        "collective backend is registered": True,
        "ACCEL_SIMULATE": "zpu:3",
    }


def test_the_device_is_listed_although_another_plugin_ends_its_process(
    environ, tmp_path
):
    install(tmp_path, "dead", accel_dead="import os; os._exit(3)")
    listed = simulate(environ, "--list").stdout
    assert "zing    built" in listed
    assert "a device that an installed plugin declares" in listed


def test_a_device_whose_plugin_imports_more_than_is_simulated_is_not_listed(
    environ, tmp_path
):
    declaration = (
        DECLARED.replace("zing", "more") + ", accelerator='accel_more.own:Own'"
    )
    modules = {
        "accel_more.__init__": declaring(declaration),
        "accel_more.own": "def start():\n    from more_sdk.torch import _loader",
    }
    install(tmp_path, "more", **modules)
    listed = simulate(environ, "--list").stdout
    assert "zing " in listed
    assert "more " not in listed


def test_the_device_can_be_built_by_its_name(environ):
    ended = simulate(environ, "--build", "zing")
    assert ended.returncode == 0
    assert ended.stdout.startswith("zing: ")
