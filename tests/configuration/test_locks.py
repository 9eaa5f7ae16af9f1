"""What a site locks may be made stricter, and never looser."""

from __future__ import annotations

from typing import Any

import pytest

from accel_core import settings
from accel_core.errors import SettingError
from accel_core.settings import Pin

LOCKED = {
    "block": 'block = ["npu"]\n',
    "allow": 'allow = ["cuda", "npu", "@acme"]\n',
    "strict": "strict = true\n",
    "probe": 'probe = "isolated"\n',
    "probe-timeout": "probe-timeout = 5\n",
    "compile": "compile = false\n",
    "accelerator": 'accelerator = ["npu", "cuda"]\n',
}


def lock(levels: Any, key: str) -> str:
    """Lock `key` in the site's file; the words for where that is said."""
    return f"{levels.write('site', f'{LOCKED[key]}lock = [{key!r}]')}, line 2"


@pytest.mark.parametrize(
    ("key", "looser", "expected"),
    [
        ("block", "block = []", {"block": (Pin("npu"),)}),
        ("allow", 'allow = ["npu", "mlu"]', {"allow": (Pin("npu"), Pin("mlu", "acme"))}),
        ("allow", "allow = []", {"allow": (Pin("cuda"), Pin("npu"), Pin("", "acme"))}),
        ("strict", "strict = false", {"strict": "1"}),
        ("probe", 'probe = "inline"', {"isolated": True}),
        ("probe-timeout", "probe-timeout = 500", {"probe_timeout": 5}),
    ],
)
def test_what_a_site_locks_nobody_loosens_and_who_tries_is_told(levels, key, looser, expected):
    where = lock(levels, key)
    levels.write("project", looser)
    found = levels.read()
    assert {name: getattr(found, name) for name in expected} == expected
    (note,) = found.notes
    assert f"accel.toml, line 1 is not obeyed: {key} is locked by {where}." in note


@pytest.mark.parametrize(
    ("key", "environ", "expected"),
    [
        ("block", {"ACCEL_BLOCK": "mlu"}, {"block": (Pin("npu"), Pin("mlu"))}),
        ("allow", {"ACCEL_ALLOW": "NPU,mlu@acme"}, {"allow": (Pin("npu"), Pin("mlu", "acme"))}),
        ("strict", {"ACCEL_STRICT": "always"}, {"strict": "always"}),
        ("probe", {"ACCEL_PROBE": "isolated"}, {"isolated": True}),
        ("probe-timeout", {"ACCEL_PROBE_TIMEOUT": "5.0"}, {"probe_timeout": 5}),
        ("accelerator", {"DS_ACCELERATOR": "cuda"}, {"pins": (Pin("cuda"),)}),
        ("accelerator", {"DS_ACCELERATOR": "npu@x"}, {"pins": (Pin("npu", "x"),)}),
    ],
)
def test_what_is_locked_may_be_made_stricter(levels, key, environ, expected):
    lock(levels, key)
    found = levels.read(**environ)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.notes == ()


def test_the_environment_cannot_loosen_a_lock_either(levels):
    where = lock(levels, "compile")
    assert settings.ACCEL_COMPILE.read({**levels.environ, "ACCEL_COMPILE": "1"}) is False
    assert levels.read(ACCEL_COMPILE="1").notes == (
        f"ACCEL_COMPILE='1' is not obeyed: compile is locked by {where}.",
    )
    assert levels.handed_on(ACCEL_COMPILE="1")["ACCEL_COMPILE"] == "0"


@pytest.mark.parametrize(("key", "variable"), [("accelerator", "DS_ACCELERATOR"), ("allow", "ACCEL_ALLOW")])
def test_what_a_lock_leaves_nothing_of_is_an_error(levels, key, variable):
    """A pin is never silently replaced, and an empty list of what is allowed would allow all."""
    where = lock(levels, key)
    with pytest.raises(SettingError) as caught:
        levels.read(**{variable: "mlu@other"})
    assert str(caught.value).startswith(f"{variable}='mlu@other' asks for what {key} = [")
    assert f"{key} is locked by {where}. Ask for what that leaves." in str(caught.value)


def test_a_union_names_all_who_contribute(levels):
    lock(levels, "block")
    (source,) = [where for name, where in levels.read(ACCEL_BLOCK="mlu").sources if name == "ACCEL_BLOCK"]
    found = levels.read(ACCEL_BLOCK="mlu,NPU")
    assert found.blocked_by("mlu", "accel-mlu") == (Pin("mlu"), "ACCEL_BLOCK='mlu,NPU'")
    assert found.blocked_by("npu", "x") == (Pin("npu"), f"block = ['npu'] in {levels.files['site']}, line 1")
    assert source == f"block = ['npu'] in {levels.files['site']}, line 1 and ACCEL_BLOCK='mlu'"
