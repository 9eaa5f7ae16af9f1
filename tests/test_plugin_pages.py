"""What plugin authors read is whole: the fields of `Backend`, and the members to override."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import accel_core
from accel_core.backend import RECORDS

MEMBERS = Path(__file__).parents[1] / "docs/reference/plugin.md"


def test_help_tells_every_field_of_a_declaration():
    kinds = (accel_core.Backend, *RECORDS.values())
    names = {kind: [field.name for field in fields(kind)] for kind in kinds}
    assert len(names) == 6
    for kind, expected in names.items():
        text = inspect.cleandoc(
            kind.__doc__ or ""
        )  # Python 3.13 takes the indentation off itself
        assert re.findall(r"^    (\w+): \S", text, re.MULTILINE) == expected
        assert getattr(accel_core, kind.__name__) is kind


def test_the_page_of_members_has_each_once():
    rows = [
        line.split("|")[1]
        for line in MEMBERS.read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(
        name for name in dir(accel_core.Accelerator) if name[0] != "_"
    )


def test_the_stand_ins_are_public():
    for name in ("HostStream", "HostEvent", "NotImplementedBuilder"):
        assert getattr(accel_core, name).__doc__
        assert name in MEMBERS.read_text("utf-8")
