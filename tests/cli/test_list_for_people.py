"""`accel list` and `accel why` as people read them first: what serves, what is broken, what is not here."""

from __future__ import annotations

import re

import pytest

from accel_core.backend import Hardware

HERE, GONE = ("/dev/null",), ("/dev/acme[0-9]*",)


@pytest.fixture
def machine(accel):
    """A machine on which one device works, one is broken, one lacks its package, and four are not there."""
    accel.install("works", description="somebody's card")
    for name, nodes, package, hardware in (
        ("there", HERE, "torch_there", "Acme NPU"),
        ("first", GONE, "json", "Acme GPU"),
        ("second", GONE, "json", "Other GPU"),
    ):
        accel.world.backend(
            name,
            500,
            hardware=Hardware(hardware, nodes, pci_ids=("fade/03",)),
            vendor_import=package,
            install_hint=f"pip install {package}",
        )
    accel.world.plugin("bad", "raise ImportError('libbad.so')")
    for name in ("one", "two", "three"):
        accel.world.backend(name, 400, vendor_import=f"torch_{name}", install_hint="pip install it")
    return accel


@pytest.mark.parametrize("columns", ["", "20", "80"])
def test_what_serves_is_first_then_what_is_broken_then_what_is_not_here(machine, columns):
    said = machine("list", COLUMNS=columns).stdout
    names = [line[2:].split()[0] for line in said.splitlines() if re.match(r"(\* |  )\w", line)]
    order = [name for name in names if name in ("works", "cpu", "there", "bad", "first", "second", "one")]
    assert order[:6] == ["works", "cpu", "there", "bad", "first", "second"]
    words = " ".join(said.split())
    for told in (
        "* works usable 2 devices: somebody's card",
        "torch_there is not installed, though the hardware is there",
        "hint: pip install torch_there",
        "libbad.so",
        "no Acme GPU found",
        "Vendor package not installed: one, three, two.",
        "* works would be chosen",
        "accel list --all",
    ):
        assert told in words
    assert "/dev/" not in said
    assert "PCI" not in said
    assert "generic" not in said
    if columns in ("60", "80", "160"):
        assert max(map(len, said.splitlines())) <= int(columns)


def test_nodes_and_ids_are_told_where_they_are_asked_for(machine):
    for arguments in (["list", "--all"], ["why", "first"]):
        said = machine(*arguments).stdout
        assert "/dev/acme[0-9]*" in said
        assert "PCI fade/03" in said
    why = machine("why").stdout
    assert "first (accel-first 1.0, priority 500): no device: no Acme GPU found" in why
    assert "Vendor package not installed: one, three, two" in why
    assert "[0-9]" not in why
    assert "PCI" not in why


def test_declarations_of_one_backend_share_a_row(accel):
    from accel_tests.plugins import arguments, declaring

    ways = [
        arguments("acme", 9 - n, hardware=Hardware(made, GONE, pci_ids=(f"fad{n}",)))
        for n, made in enumerate(("Acme GPU", "Other GPU", "Acme NPU"))
    ]
    accel.world.plugin("acme", declaring(*ways))
    rows = [line for line in accel("list").stdout.splitlines() if line.startswith("  acme")]
    assert [" ".join(row.split()) for row in rows] == [
        "acme no device no Acme or Other GPU, no Acme NPU found"
    ]


def test_an_address_in_a_hint_is_not_torn(accel):
    address = "https://example.org/" + "a_long_way/" * 5
    accel.install("npu", f"ProbeResult(False, 'switched off', 'see {address}')")
    assert address in accel("list", COLUMNS="80").stdout


def test_so_few_that_lack_a_package_that_each_says_what_to_do(accel):
    accel.world.backend("one", vendor_import="torch_one", install_hint="pip install torch-one")
    said = accel("list").stdout
    assert "not installed  torch_one is not installed; hint: pip install torch-one" in said
