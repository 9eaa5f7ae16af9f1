"""What is Intel Gaudi's own: its declaration, the next step after its errors, its package's namespace."""

from __future__ import annotations

import pytest
from accel_tests import layouts

import accel_core
from accel_core import hint_for
from accel_hpu import BACKEND

PCI = (("0000:3b:00.0", "1da3", "1020", "120000"),)
#: A machine with a Gaudi whose driver is loaded.
GAUDI = {"pci": PCI, "nodes": ("/dev/hl0",)}


def test_the_declaration():
    assert BACKEND.vendor_imports == ("habana_frameworks.torch",)
    assert BACKEND.visibility.variables == ("HABANA_VISIBLE_MODULES",)
    assert BACKEND.visibility.grammar == "modules"
    assert (BACKEND.communication_backend, BACKEND.compile_backend) == ("hccl", "hpu_backend")
    assert BACKEND.hardware.pci_ids == ("1da3",)


@pytest.mark.parametrize("variable", ["HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID"])
def test_which_modules_a_process_has_is_not_forwarded_to_other_nodes(variable):
    assert not variable.startswith(BACKEND.environment.forward)


@pytest.mark.parametrize("variable", ["PT_HPU_LAZY_MODE", "HCCL_OVER_OFI", "HABANA_LOGS", "HABANA_PROFILE"])
def test_what_steers_the_bridge_is_forwarded(variable):
    assert variable.startswith(BACKEND.environment.forward)


def test_the_kernels_common_folder_of_accelerators_is_no_sign_of_a_gaudi(tmp_path):
    (tmp_path / "dev" / "accel").mkdir(parents=True)
    (tmp_path / "dev" / "accel" / "accel0").touch()
    assert not accel_core.evidence(BACKEND, str(tmp_path))
    (tmp_path / "dev" / "hl0").touch()
    assert accel_core.evidence(BACKEND, str(tmp_path))


SEEN = [
    ("Stock PyTorch version 2.13.0+cpu is not supported in Lazy mode.", "PT_HPU_LAZY_MODE=0"),
    ("'NoneType' object has no attribute 'startswith'", "PT_HPU_LAZY_MODE=0"),
    (
        "Error: Compile-time major/minor PyTorch version 2.5.1 differs from run-time 2.13.0.",
        "one Gaudi release",
    ),
    ("No module named 'habana_frameworks.torch'", "PyTorch bridge"),
    ("libSynapse.so: cannot open shared object file: No such file or directory", "hl-smi"),
    ("libhabana_pytorch2_plugin.upstream.so: undefined symbol: _ZN5torch", "one Gaudi release"),
    ("synStatus=8 [Device not found] Device acquire failed.", "one process can use one module"),
    ("invalid literal for int() with base 10: ''", "HABANA_VISIBLE_MODULES"),
    ("Allocation failed for size::4294967296 (4096)MB: out of memory", "hl-smi"),
]


@pytest.mark.parametrize(("message", "hint"), SEEN, ids=[message[:30] for message, _ in SEEN])
def test_known_errors(message, hint):
    error = ImportError("wrapped")
    error.__cause__ = RuntimeError(message)
    assert hint in hint_for(error, BACKEND.hints)


@pytest.mark.parametrize(
    "message", ["", "list index out of range", "expected scalar type Half but found Float"]
)
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None


def bridge(site, source: str, version: str = "1.22.0") -> None:
    layouts.dist_info(site, "habana-torch-plugin", version)
    layouts._write(site, {"habana_frameworks/torch/__init__.py": source})


class TestVerdicts:
    @pytest.fixture
    def one(self, site, judge):
        layouts.dist_info(site, "accel-hpu", "0.1.0", {layouts.GROUP: {"hpu": "accel_hpu"}})

        def run(**given):
            (verdict,), imported = judge("hpu", **given)
            assert imported == []
            return verdict

        return run

    def test_another_package_in_the_same_namespace(self, site, one):
        layouts._write(site, {"habana_frameworks/mediapipe/__init__.py": ""})
        found = one(**GAUDI)
        assert found["status"] == "not_installed"
        assert found["reason"].startswith("habana_frameworks.torch is not installed, though the hardware is")
        assert "Gaudi's software" in found["hint"]

    def test_a_package_that_is_too_old(self, site, one):
        bridge(site, "raise SystemExit('imported')", version="1.16.2")
        found = one(**GAUDI)
        assert found["status"] == "incompatible"
        assert "habana-torch-plugin 1.16.2" in found["reason"]

    def test_without_hardware(self, site, one):
        bridge(site, "raise SystemExit('imported')")
        assert one()["status"] == "no_device"
