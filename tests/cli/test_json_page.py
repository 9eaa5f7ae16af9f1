"""docs/reference/json.md says every key of the documents, and no other."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from accel_tests import plugins

from accel_core import Backend
from accel_core.backend import RECORDS
from accel_testing.conformance.catalogue import checks
from accel_testing.conformance.document import to_dict
from accel_testing.conformance.records import ConformanceReport, Outcome, Result
from accel_tools.setup.machines import Machine

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
#: Mappings whose keys are whatever is there.
FREE = ("environ", "problems", "op_builders", "topics[].findings[].facts", "counts")
#: A card of `accel verify`; that the command prints it so is for accel-testing's tests.
CARD = ConformanceReport(
    "acme",
    "accel-acme",
    "1.0",
    "0.1.0",
    "",
    "3.11",
    "",
    0,
    (Result(checks()[0], Outcome.PASSED),),
    1.0,
)


def keys_of(value, at=""):
    """Each key of a document by its path: `devices[].name`."""
    if isinstance(value, dict) and at not in FREE:
        for name, inner in value.items():
            yield from keys_of(inner, f"{at}.{name}" if at else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield f"{at}[]"
        for item in value:
            yield from keys_of(item, f"{at}[]")
    elif isinstance(value, list):
        yield f"{at}[]"
        return
    if at and not isinstance(value, list):
        yield at


def documented():
    sections = re.split(r"(?m)^##+ (.*)$", PAGE.read_text("utf-8"))[1:]
    return {
        title: {
            key
            for item in re.findall(r"(?ms)^- (`.+?`): ", body)
            for key in re.findall(r"`([^`]+)`", item)
        }
        for title, body in zip(sections[::2], sections[1::2], strict=True)
    }


def plain(names):
    """Lists and their items as one: a list may be `null`, or empty."""
    return {re.sub(r"\[\]$", "", name) for name in names}


def install_early(accel):
    """A plugin that imports torch, and whose vendor's package fails to load."""
    accel.world.distribution("torch-vendored", "2.0")
    accel.world.module(
        "torch_vendored.__init__", "raise OSError('libvendored.so: no such file')"
    )
    early = plugins.declaring(
        plugins.arguments("early", vendor_import="torch_vendored")
    )
    accel.world.plugin("early", f"import torch\n{early}")


@pytest.mark.skipif(
    not PAGE.exists(), reason="the documents are not in this distribution"
)
def test_every_key_is_on_the_page_and_every_key_of_the_page_is_there(
    accel, tmp_path, monkeypatch
):
    mac = Machine(str(tmp_path), "darwin", "arm64", "3.12")
    monkeypatch.setattr("accel_tools.commands.setup.machines.here", lambda _: mac)
    pages = {title: plain(names) for title, names in documented().items()}
    accel.install_card()
    install_early(accel)
    check = (
        "from accel_core import Check, CheckResult\nreturn [Check('a', 'A', "
        "lambda: CheckResult('ok', 'b'))]"
    )
    accel.world.backend(
        "checked", 1, extra=plugins.hook("accel_checks", "backend", check)
    )
    a_backend = pages.pop("A backend")
    pages["accel list"] |= {f"backends[].{name}" for name in a_backend}
    pages["accel why"] |= {f"verdicts[].{name}" for name in a_backend}
    pages["accel why NAME"] |= {f"backends[].{name}" for name in a_backend}
    pages["accel declarations"] |= {
        f"backends[].{f.name}" for f in fields(Backend) if f.name != "provenance"
    }
    pages["accel declarations"] |= {
        f"backends[].{name}.{f.name}"
        for name, record in RECORDS.items()
        for f in fields(record)
    }
    pages["Errors"].add("error")
    said = {
        "accel list": accel.json("list"),
        "accel why": accel.json("why"),
        "accel why NAME": accel.json("why", "early", status=1),
        "accel info": accel.json("info"),
        "accel ops": accel.json("ops"),
        "accel doctor": accel.json(
            "doctor", "--topic", "candidates", "early", status=1
        ),
        "accel doctor --list": accel.json("doctor", "--list"),
        "accel setup": accel.json("setup", "--format", "pip"),
        "accel frameworks": accel.json("frameworks", "cpu", "--all"),
        "accel declarations": accel.json("declarations", ACCEL_BLOCK="checked"),
        "accel verify": {"schema": 1, **to_dict(CARD)},
        "accel verify --list": accel.json("verify", "cpu", "--list"),
        "Errors": accel.json("why", "nowhere", status=2),
    }
    assert pages.keys() == said.keys()
    for title, document in said.items():
        assert plain(set(keys_of(document))) == {"schema", *pages[title]}, title
        assert next(iter(document)) == "schema"
        assert document["schema"] == (2 if title == "accel declarations" else 1)


def test_why_a_backend_says_which_plugin_declares_it(accel):
    install_early(accel)
    (early,) = accel.json("why", "early", status=1)["backends"]
    assert early["distribution"] == "accel-early"
    assert early["version"] == "1.0"
    assert early["entry_point_name"] == "early"
    assert early["entry_point"] == "accel_early"


def test_why_a_backend_says_which_distribution_its_vendors_package_is_of(accel):
    install_early(accel)
    (early,) = accel.json("why", "early", status=1)["backends"]
    vendor = {
        "module": "torch_vendored",
        "distribution": "torch-vendored",
        "version": "2.0",
    }
    assert early["vendor_packages"] == [vendor]
