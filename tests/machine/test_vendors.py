"""Hardware that is known without its plugin, on trees built on disk, and against what plugins declare."""

import importlib
import sys
from pathlib import Path

import pytest

from accel_core import Backend
from accel_core.hardware import bus
from accel_core.hardware.vendors import (
    FIRST_PARTY,
    VENDORS,
    known_hardware,
)


def test_the_bus_and_each_folder_are_read_once(machine, monkeypatch):
    """Every process without a usable device asks, before it does anything else."""
    machine.sign("10de:2335 030200")
    machine.sign("/dev/nvidia0")
    listed = []
    real = bus.hardware.names_in
    monkeypatch.setattr(
        bus.hardware, "names_in", lambda *asked: listed.append(asked[0]) or real(*asked)
    )
    (known,) = known_hardware(machine.path)
    assert known.label == "NVIDIA GPU"
    assert known.backend == "cuda"
    assert known.distribution == "accel-cuda"
    assert str(known.evidence) == "/dev/nvidia0; PCI 10de:2335 at 0000:81:00.0"
    assert not known.is_integrated
    assert sorted(listed) == [
        "/dev",
        "/dev/biren",
        "/dev/nvgpu",
        "/sys/bus/pci/devices",
        "/usr/lib/wsl/lib",
    ]


class TestKnownHardware:
    def labels(self, machine):
        return [known.label for known in known_hardware(machine.path)]

    @pytest.mark.parametrize(
        ("sign", "label"),
        [
            # No accelerators: consoles (QEMU's, VirtIO's, QXL, VMware's, Hyper-V's, Cirrus, ASPEED, Matrox,
            # ATI's ES1000, RV100 and Rage XL), AMD's sound, NVSwitch, Kunpeng's ZIP engine, Intel's NPU.
            ("1234:1111 030000", ""), ("1af4:1050 038000", ""), ("1b36:0100 030000", ""),
            ("15ad:0405 030000", ""), ("1414:5353 030000", ""), ("1013:00b8 030000", ""),
            ("1a03:2000 030000", ""), ("102b:0536 030000", ""), ("1002:515e 030000", ""),
            ("1002:5159 030000", ""), ("1002:4752 030000", ""), ("1002:aaf0 040300", ""),
            ("10de:22a3 068000", ""), ("19e5:a250 120000", ""), ("8086:7d1d 120000", ""),
            ("1002:744c 030000", "AMD GPU"), ("1002:74a1 120000", "AMD GPU"),
            ("19e5:d802 120000", "Ascend NPU"), ("1da3:1020 120000", "Intel Gaudi"),
            ("cabc:0370 120000", "Cambricon MLU"), ("1d22:3684 120000", "Kunlunxin XPU"),
            ("1d22:3688 120000", "Kunlunxin XPU"), ("2057:3689 078000", "Kunlunxin XPU"),
            ("1eff:1250 120000", "Rebellions NPU"), ("1ed5:0201 030000", "Moore Threads GPU"),
            ("1ed5:02ff 040300", ""), ("/dev/mtgpu.0", "Moore Threads GPU"),
            # GPUs that answer as torch.cuda; a Hygon processor's bridge is none.
            ("9999:4001 038000", "MetaX GPU"), ("1e3e:0001 120000", "Iluvatar GPU"),
            ("1d94:55b7 038000", "Hygon DCU"), ("1d94:55b7 0b4000", "Hygon DCU"), ("1d94:1450 060000", ""),
            ("/dev/mxcd", "MetaX GPU"), ("/dev/iluvatar0", "Iluvatar GPU"), ("/dev/mkfd", "Hygon DCU"),
            # Both makers' driver has /dev/kfd.
            ("/dev/kfd + /dev/mkfd", "Hygon DCU"), ("/dev/mkfd + 1002:74a1 120000", "Hygon DCU + AMD GPU"),
            ("/dev/nvidia0", "NVIDIA GPU"), ("/dev/nvhost-ctrl-gpu", "NVIDIA GPU"),
            ("/usr/lib/wsl/lib/libcuda.so.1", "NVIDIA GPU"), ("/dev/kfd", "AMD GPU"),
            ("/dev/davinci7", "Ascend NPU"), ("/dev/cambricon_dev0", "Cambricon MLU"),
            ("/dev/tcaicard0", "Tecorigin SDAA card"), ("/dev/biren/card_0", "Biren GPU"),
            ("/dev/xpu0", "Kunlunxin XPU"), ("/dev/rbln0", "Rebellions NPU"),
            ("/dev/neuron0", "AWS Trainium"), ("1d0f:7364 120000", "AWS Trainium"),
            # These prove nothing.
            ("/dev/nvidiactl", ""), ("/dev/davinci_manager", ""), ("/dev/xpuctrl", ""), ("/dev/sdaa", ""),
            ("/dev/dxg", ""), ("/dev/dri/renderD128", ""), ("/dev/accel/accel0", ""),
        ],
    )  # fmt: skip
    def test_what_one_sign_means(self, machine, sign, label):
        for each in sign.split(" + "):
            machine.sign(each)
        assert " + ".join(self.labels(machine)) == label

    def test_intel_discrete_and_integrated_are_told_apart(self, machine):
        machine.pci("0000:00:02.0", "8086", "a780", "030000")
        machine.pci("0000:03:00.0", "8086", "e20b", "030000")
        found = {
            k.label: (str(k.evidence), k.is_integrated)
            for k in known_hardware(machine.path)
        }
        assert found == {
            "Intel discrete GPU": ("PCI 8086:e20b at 0000:03:00.0", False),
            "Intel integrated GPU": ("PCI 8086:a780 at 0000:00:02.0", True),
        }

    def test_apple_by_platform(self, machine, monkeypatch):
        machine.write("dev/nvidia0")  # not looked at: this is no Linux
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr("platform.machine", lambda: "arm64")
        (known,) = known_hardware(machine.path)
        assert known.backend == "mps"
        assert str(known.evidence) == "Apple silicon"

    def test_every_backend_has_its_distribution(self):
        assert FIRST_PARTY["cuda"] == "accel-cuda"
        assert all(
            distribution == f"accel-{name}"
            for name, distribution in FIRST_PARTY.items()
        )


PLUGINS = Path(__file__).parents[2] / "plugins"
ANY_GPU = "WSL2's node for any maker's GPU: only torch's build, which the plugin asks, says whose it is"
OTHER_SYSTEMS = (
    "torch has it on other systems too, and only Linux shows its devices in files"
)

#: What only the table has, or only the plugin's declaration, each with the reason.
DIFFERENCES = {
    ("cuda", "declaration", "/dev/dxg"): ANY_GPU,
    (
        "cuda",
        "table",
        "/usr/lib/wsl/lib/libcuda.so.1",
    ): "says that the GPU behind /dev/dxg is NVIDIA's",
    ("cuda", "table", "linux"): OTHER_SYSTEMS,
    # Linux, drivers/misc/habanalabs/common/device.c; later drivers have the nodes of the shared class accel.
    (
        "hpu",
        "declaration",
        "/dev/hl[0-9]*",
    ): "of older drivers alone, and the bus shows every Gaudi",
    ("xpu", "declaration", "/dev/dxg"): ANY_GPU,
    ("xpu", "declaration", "win32"): OTHER_SYSTEMS,
}


def declared():
    """The first-party declarations, by the name of the backend."""
    backends = {}
    projects = sorted(PLUGINS.glob("accel_*/pyproject.toml"))
    declaring = [
        path
        for path in projects
        if '"accel.backends"' in path.read_text(encoding="utf-8")
    ]
    for module in (path.parent.name for path in declaring):
        plugin = importlib.import_module(module)
        given, alike = (
            plugin.accel_backends(),
            getattr(plugin, "LOOK_ALIKES", {}).values(),
        )
        for backend in (*([given] if isinstance(given, Backend) else given), *alike):
            backends.setdefault(backend.name, []).append(backend)
    return backends


def in_table(name):
    rows = [vendor for vendor in VENDORS if vendor.backend == name]
    # A row without a platform of its own is looked for on Linux alone.
    return {
        fact for row in rows for fact in (*row.nodes, *row.pci, row.platform or "linux")
    }


@pytest.mark.skipif(
    not PLUGINS.is_dir(), reason="an sdist of accel-core has no plugins"
)
class TestDeclarations:
    @pytest.fixture(autouse=True)
    def _plugins(self, monkeypatch):
        for path in PLUGINS.glob("*/src"):
            monkeypatch.syspath_prepend(str(path))

    def test_table_and_declarations_differ_only_where_it_is_meant(self):
        differences = set()
        for name, backends in declared().items():
            table, declared_as = in_table(name), [b.hardware for b in backends]
            declaration = {
                fact
                for h in declared_as
                for fact in (*h.nodes, *h.pci_ids, *h.platforms)
            }
            differences |= {(name, "table", fact) for fact in table - declaration}
            differences |= {(name, "declaration", fact) for fact in declaration - table}
        assert differences == set(DIFFERENCES)

    def test_every_row_has_its_plugin_and_every_plugin_its_row(self):
        assert set(declared()) == {vendor.backend for vendor in VENDORS}
        assert set(FIRST_PARTY) == {vendor.backend for vendor in VENDORS}

    def test_the_distribution_to_install_is_the_one_that_declares_the_backend(self):
        for distribution in FIRST_PARTY.values():
            project = PLUGINS / distribution.replace("-", "_") / "pyproject.toml"
            assert f'\nname = "{distribution}"\n' in project.read_text()

    @pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.label)
    def test_no_node_and_no_pci_id_is_of_two_backends(self, vendor):
        others = [row for row in VENDORS if row.backend != vendor.backend]
        assert not {*vendor.nodes, *vendor.pci} & {
            fact for row in others for fact in (*row.nodes, *row.pci)
        }
