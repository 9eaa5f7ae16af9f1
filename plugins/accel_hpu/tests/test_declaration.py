"""The declaration, that finding the plugin changes nothing, hints, and verdicts on broken installations."""

from __future__ import annotations

import json
import sys

import pytest
from accel_testing import children, layouts
from hypothesis import given
from hypothesis import strategies as st

import accel_core
from accel_core import hint_for
from accel_hpu import BACKEND

PCI = (("0000:3b:00.0", "1da3", "1020", "120000"),)
#: A machine with a Gaudi whose driver is loaded.
GAUDI = {"pci": PCI, "nodes": ("/dev/hl0",)}


def test_the_declaration():
    assert (BACKEND.name, BACKEND.priority, BACKEND.device_type) == ("hpu", 400, "hpu")
    assert BACKEND.vendor_imports == ("habana_frameworks.torch",)
    assert BACKEND.visible_devices == ("HABANA_VISIBLE_MODULES",)
    assert BACKEND.visible_devices_grammar == "modules"
    assert (BACKEND.communication_backend, BACKEND.compile_backend) == ("hccl", "hpu_backend")
    assert BACKEND.pci_ids == ("1da3",)
    assert not BACKEND.private_use1


@pytest.mark.parametrize("variable", ["HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID"])
def test_which_modules_a_process_has_is_not_forwarded_to_other_nodes(variable):
    assert not variable.startswith(BACKEND.export_envs)


@pytest.mark.parametrize("variable", ["PT_HPU_LAZY_MODE", "HCCL_OVER_OFI", "HABANA_LOGS", "HABANA_PROFILE"])
def test_what_steers_the_bridge_is_forwarded(variable):
    assert variable.startswith(BACKEND.export_envs)


def test_the_kernels_common_folder_of_accelerators_is_no_sign_of_a_gaudi(tmp_path):
    (tmp_path / "dev" / "accel").mkdir(parents=True)
    (tmp_path / "dev" / "accel" / "accel0").touch()
    assert not accel_core.evidence(BACKEND, str(tmp_path))
    (tmp_path / "dev" / "hl0").touch()
    assert accel_core.evidence(BACKEND, str(tmp_path))


def test_importing_it_is_inert():
    code = (
        "import json, os, sys, threading; before = dict(os.environ)\n"
        "import accel_core, accel_hpu; accel_core.hint_for(OSError('x'), accel_hpu.BACKEND.hints)\n"
        "heavy = [m for m in ('torch', 'habana_frameworks', 'accel_hpu.accelerator') if m in sys.modules]\n"
        "print(json.dumps([heavy, before == dict(os.environ), threading.active_count()]))"
    )
    assert children.run(code, [p for p in sys.path if p]).answer == [[], True, 1]


@pytest.mark.parametrize("value", ["", "8", "0,0", "0,8", "-1", "a", "0-3", "0, ,1", "0;1", "0" * 40])
def test_module_ids_that_the_bridge_refuses(value):
    with pytest.raises(ValueError, match="module ids from 0 to 7"):
        accel_core.parse_visible_devices("modules", value)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True))
def test_module_ids_go_through_unchanged(ids):
    value = accel_core.format_visible_devices("modules", ids)
    assert accel_core.parse_visible_devices("modules", value).ids == tuple(ids)


@given(st.text(max_size=40))
def test_any_text_is_module_ids_or_a_value_error(value):
    try:
        ids = accel_core.parse_visible_devices("modules", value).ids
    except accel_core.SettingError:
        return
    assert ids
    assert all(0 <= i <= 7 for i in ids)


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
    def install(self, site):
        layouts.dist_info(site, "accel-hpu", "0.1.0", {layouts.GROUP: {"hpu": "accel_hpu"}})

    def one(self, site, judge, **given):
        self.install(site)
        (verdict,), imported = judge("hpu", **given)
        return verdict, imported

    def test_hardware_without_the_package(self, site, judge):
        found, imported = self.one(site, judge, **GAUDI)
        assert found["status"] == "not_installed"
        assert "the hardware is there" in found["reason"]
        assert "Gaudi's software" in found["hint"]
        assert imported == []

    def test_the_package_without_hardware(self, site, judge):
        bridge(site, "raise SystemExit('imported')")
        found, imported = self.one(site, judge)
        assert (found["status"], imported) == ("no_device", [])

    def test_another_package_in_the_same_namespace(self, site, judge):
        layouts._write(site, {"habana_frameworks/mediapipe/__init__.py": ""})
        found, imported = self.one(site, judge, **GAUDI)
        assert found["status"] == "not_installed"
        assert found["reason"].startswith("habana_frameworks.torch is not installed, though the hardware is")
        assert "Gaudi's software" in found["hint"]
        assert imported == []

    def test_a_package_that_is_too_old(self, site, judge):
        bridge(site, "raise SystemExit('imported')", version="1.16.2")
        found, imported = self.one(site, judge, **GAUDI)
        assert found["status"] == "incompatible"
        assert "habana-torch-plugin 1.16.2" in found["reason"]
        assert imported == []

    @pytest.mark.parametrize(
        ("source", "reason", "hint"),
        [
            ("raise AssertionError('Stock PyTorch version 2.99.0 is not supported in Lazy mode.')",
             "AssertionError: Stock PyTorch", "PT_HPU_LAZY_MODE=0"),
            ("None.startswith", "AttributeError: 'NoneType'", "PT_HPU_LAZY_MODE=0"),
            ("raise AssertionError('Error: Compile-time major/minor PyTorch version 2.5.1 differs')",
             "AssertionError: Error: Compile-time", "one Gaudi release"),
            ("import ctypes; ctypes.CDLL('libSynapse.so')", "OSError: libSynapse.so", "hl-smi"),
        ],
    )  # fmt: skip
    def test_a_broken_package(self, site, judge, source, reason, hint):
        bridge(site, source)
        found, _ = self.one(site, judge, **GAUDI)
        assert found["status"] == "broken"
        assert reason in found["reason"]
        assert hint in found["hint"]

    def test_another_platform(self, site, judge):
        bridge(site, "")
        found, _ = self.one(site, judge, **GAUDI, code="sys.platform = 'win32'")
        assert (found["status"], found["reason"]) == ("no_device", "this device exists on linux only")


def test_the_hint_of_a_verdict_is_json(site, judge):
    layouts.dist_info(site, "accel-hpu", "0.1.0", {layouts.GROUP: {"hpu": "accel_hpu"}})
    assert json.dumps(judge("hpu"))
