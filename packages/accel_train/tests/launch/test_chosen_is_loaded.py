"""Ranks of `accel run` have the chosen device in torch, also where the program asks torch alone."""

import json
import sys

import pytest
from accel_tests import layouts, plugins
from accel_tests.children import clean_environment, run_python

pytest.importorskip("torch")

#: A package behind `torch.backends`, as PyTorch's documentation has it.
BRINGS = """
def _autoload():
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
    _setup_privateuseone_for_python_backend("{device}")
"""
BREAKS = "raise OSError('lib{device}.so: cannot open shared object file')"
#: A vendor's package that announces itself to nobody.
SILENT = BRINGS + "\n_autoload()\n"
#: Asks torch alone, in the rank and in a process that it starts; accel is never imported.
SCRIPT = """
import json, subprocess, sys
from pathlib import Path
import torch

device = torch.accelerator.current_accelerator()
print(json.dumps([None if device is None else device.type, "accel_core" in sys.modules]), flush=True)
if sys.argv[1:] != ["child"]:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


@pytest.fixture
def job(tmp_path):
    """`job(pin, foo=SOURCE, ...)`: what rank and child print where these packages are installed."""

    def run(pin, plugin="", **packages):
        site = tmp_path / "site"
        for device, source in packages.items():
            announced = (
                {}
                if source is SILENT
                else {"torch.backends": {device: f"torch_{device}:_autoload"}}
            )
            modules = {f"torch_{device}": source.format(device=device)}
            layouts.dist_info(site, f"torch-{device}", "1.0", announced, modules)
        if plugin:
            declared = plugins.arguments(
                plugin, 950, vendor_import=f"torch_{plugin}", accelerator=""
            )
            modules = {f"accel_{plugin}_here": plugins.declaring(declared)}
            groups = {layouts.GROUP: {plugin: f"accel_{plugin}_here"}}
            layouts.dist_info(site, f"accel-{plugin}-here", "1.0", groups, modules)
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
        environ = clean_environment(PYTHONPATH=str(site), DS_ACCELERATOR=pin)
        options = [
            "--nproc-per-node",
            "1",
            "--communication-backend",
            "staged",
            str(script),
        ]
        ended = run_python(
            ["-m", "accel_core", "run", *options], environ, timeout=120
        ).succeeded()
        return [
            json.loads(line)
            for line in ended.stdout.splitlines()
            if line.startswith("[")
        ]

    return run


def both(device):
    """What the rank and the process that it starts print."""
    return [[device, False]] * 2


@pytest.mark.parametrize(
    "pin",
    [
        pytest.param(
            "foo", marks=pytest.mark.nightly(reason="a second job; by day bar")
        ),
        "bar",
    ],
)
def test_of_two_unknown_packages_the_pinned_one_is_loaded(job, pin):
    assert job(pin, foo=BRINGS, bar=BRINGS) == both(pin)


@pytest.mark.nightly(reason="a job; by day beside a known vendor")
def test_another_package_that_breaks_torch_takes_no_device_away(job):
    assert job("foo", foo=BRINGS, bar=BREAKS) == both("foo")


def test_a_known_vendor_beside_one_that_breaks_torch_is_loaded(job):
    assert job(
        "acme",
        plugin="acme",
        acme=BRINGS + "\n_autoload()\n_autoload = int\n",
        bar=BREAKS,
    ) == both("acme")


@pytest.mark.skipif(sys.platform == "win32", reason="simulated devices")
def test_a_vendor_that_announces_nothing_is_loaded(job):
    assert job("acme", plugin="acme", acme=SILENT) == both("acme")
