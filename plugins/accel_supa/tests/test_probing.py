"""What is said of the backend on machines with and without hardware, package and the right versions."""

from __future__ import annotations

import pytest

from accel_core import hint_for
from accel_supa import BACKEND

NODE = "/dev/biren/card_0"
SET_ENV = "brsw_set_env.sh"


@pytest.fixture
def machine(machine):
    machine.distribution("torch-supa", "1.0.0.20900+br2xx")
    return machine


def test_the_declaration():
    assert (BACKEND.name, BACKEND.priority, BACKEND.device_type) == ("supa", 250, "supa")
    assert BACKEND.vendor_imports == ("torch_supa",)
    assert BACKEND.private_use1
    assert BACKEND.impersonates == "cuda"
    assert BACKEND.visible_devices == ("SUPA_VISIBLE_DEVICES",)
    assert (BACKEND.communication_backend, BACKEND.compile_backend) == ("bccl", "inductor")
    assert {"BCCL", "BIREN", "SUPA", "BRTB", "LD_LIBRARY", "PATH"} == set(BACKEND.export_envs)


def test_hardware_without_the_package(machine):
    verdict = machine.probe(NODE)
    assert verdict["status"] == "not_installed"
    assert verdict["reason"] == f"torch_supa is not installed, though the hardware is there: {NODE}"
    assert "Biren's SDK" in verdict["hint"]


def test_the_package_without_hardware_is_not_imported(machine):
    machine.package("raise SystemExit('imported')\n")
    verdict = machine.probe()
    assert (verdict["status"], verdict["vendor_imported"]) == ("no_device", False)


def test_both(machine):
    machine.package(machine.working(2))
    verdict = machine.probe(NODE)
    assert (verdict["status"], verdict["devices"]) == ("usable", 2)


def test_every_device_is_hidden(machine):
    machine.package(machine.working(0))
    verdict = machine.probe(NODE, variables={"SUPA_VISIBLE_DEVICES": ""})
    assert verdict["reason"] == "SUPA_VISIBLE_DEVICES='' hides every device"


@pytest.mark.parametrize(
    ("distribution", "version", "reason"),
    [
        ("torch", "2.4.0", "torch>=2.6"),
        ("torch-supa", "1.0.0.20501+br2xx", "torch-supa 1.0.0.20501+br2xx is installed"),
    ],
)
def test_too_old(machine, distribution, version, reason):
    machine.package(machine.working(1))
    machine.distribution(distribution, version)
    verdict = machine.probe(NODE)
    assert verdict["status"] == "incompatible"
    assert reason in verdict["reason"]
    assert not verdict["vendor_imported"]


@pytest.mark.parametrize(
    "version", ["1.0.0.20600", "1.0.0.21000+br2xx.isa", "1.0.0.20900+git68fb624", "1.1.0.20800"]
)
def test_new_enough(machine, version):
    machine.package(machine.working(1))
    machine.distribution("torch-supa", version)
    assert machine.probe(NODE)["status"] == "usable"


BROKEN = {
    "no SDK": ("raise ImportError('libsupa-runtime.so: cannot open shared object file')", SET_ENV),
    "no SUDA": ("raise ImportError('libcudart.so.12: cannot open shared object file')", SET_ENV),
    "no runtime in the build": ("raise AssertionError('libsupart functions unavailable.')", SET_ENV),
    "another torch": (
        "raise ImportError('torch_supa/lib/libtorch_supa.so: undefined symbol: _ZN2at')",
        "1.0.0.21000 is for torch 2.10.0",
    ),
    "a second vendor": (
        "raise RuntimeError('torch.register_privateuse1_backend() has already been set! Current: mlu')",
        "DS_ACCELERATOR=supa",
    ),
}


@pytest.mark.parametrize("way", BROKEN)
def test_the_package_is_broken(machine, way):
    source, hint = BROKEN[way]
    machine.package(source)
    verdict = machine.probe(NODE)
    assert verdict["status"] == "broken"
    assert verdict["reason"].startswith("torch_supa failed: ")
    assert hint in verdict["hint"]


def test_another_vendor_holds_privateuse1(machine):
    machine.package(machine.working(1))
    verdict = machine.probe(NODE, before="torch._C.private_use1 = 'npu'")
    assert verdict["status"] == "broken"
    assert "held by npu" in verdict["reason"]


# What the autoload of torch_supa does to torch.cuda.
TAKEOVER = (
    "\nimport types\ntorch.cuda = types.ModuleType('torch.cuda')\ntorch.cuda.device_count = lambda: 1\n"
)


def test_it_is_ranked_before_cuda_whatever_the_numbers_say(machine):
    machine.package(machine.working(1) + TAKEOVER)
    before = (
        "import accel_core, importlib.metadata\n"
        "from accel_core.detection.discovery import discover\n"
        "order = [c.name for c in discover()]\n"
        "assert 'cuda' not in order or order.index('supa') < order.index('cuda'), order"
    )
    assert machine.probe(NODE, before=before)["status"] == "usable"


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("libbccl.so: cannot open shared object file", SET_ENV),
        ("libsudnn.so.1: cannot open shared object file", SET_ENV),
        ("libsublas.so: cannot open shared object file", SET_ENV),
        ("SUPA out of memory. Tried to allocate 20.00 GiB", "brsmi"),
    ],
)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


@pytest.mark.parametrize("message", ["", "list index out of range", "libssl.so.1.1: cannot open"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None
