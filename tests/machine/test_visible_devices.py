"""Each vendor's visible-devices grammar, read."""

import pytest

from accel_core.backend import GRAMMARS, Backend, Visibility
from accel_core.errors import SettingError
from accel_core.hardware.visible_devices import (
    Inventory,
    parse_visible_devices,
    read_visible_devices,
)

U1 = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
U2 = "GPU-74b0a1c9-1b36-4fd2-9e55-0a2a6c1ffb11"
MIG = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"
OLD_MIG = f"MIG-{U1}/1/0"
MLU = "8d0a7b4e-5f11-4cf6-a0bd-3ea8ab1c71c2"


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_unset_means_every_device(grammar):
    assert parse_visible_devices(grammar, None).ids is None


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("", ()),
        (" ", ()),
        ("0", (0,)),
        ("2,0,1", (2, 0, 1)),
        (" 0 , 1 ", (0, 1)),
        ("-1", ()),
        ("0,-1,1", (0,)),
        ("0,x,1", (0,)),
        ("0,,1", (0,)),
        ("+1", (1,)),
        ("-0", (0,)),
        ("1gpu2,2ampere", (1, 2)),  # strtoul reads as far as it can
        ("NoDevFiles", ()),
        ("0,1,0", ()),  # a repeat hides everything
        ("0,x,0", (0,)),  # but not one behind the end
        ("9999999999", ()),
        ("\u00b2", ()),
        (U1, (U1,)),
        (f"{U1},{U2}", (U1, U2)),
        ("GPU-8932,GPU-74b0", ("GPU-8932", "GPU-74b0")),
        (f"{U1},{U1}", ()),
        (f"{U1},1", (U1,)),  # kinds do not mix
        (f"0,{U1}", (0,)),
        (f"{U1}, {U2}", (U1,)),  # and identifiers are not stripped
        (MIG, (MIG,)),
        (f"{MIG},{OLD_MIG}", (MIG, OLD_MIG)),
        (f"{MIG},{U1}", (MIG,)),
    ],
)
def test_cuda(value, ids):
    assert parse_visible_devices("cuda", value).ids == ids


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("", ()),
        ("0,1,5", (0, 1, 5)),
        ("0, 1", (0,)),  # a space ends the list
        (" 0", ()),
        ("1a,2", (1,)),
        ("0,1,", (0, 1)),
        ("1,0", ()),  # torch_npu counts no device unless the ids ascend
        ("0,0", ()),
        ("1,0 ,2", ()),
        ("-1", ()),
        ("1234567890", ()),
    ],
)
def test_ascending(value, ids):
    assert parse_visible_devices("ascending", value).ids == ids


@pytest.mark.parametrize(
    ("value", "ids"), [("0", (0,)), ("7,6", (7, 6)), ("0, 1", (0, 1))]
)
def test_modules(value, ids):
    assert parse_visible_devices("modules", value).ids == ids


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("", ()),
        ("3,1", (3, 1)),
        (" 3 ,1", (3, 1)),
        ("1gpu", ()),  # no strtoul here
        ("0,-1,1", (0,)),
        ("0,0", ()),
        (MLU, (MLU,)),
        (f"{MLU},{MLU}", ()),
        (f"{MLU},7", (MLU,)),
        (MLU[:20], ()),  # too short to be taken for a UUID
    ],
)
def test_mlu(value, ids):
    assert parse_visible_devices("mlu", value).ids == ids


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("", None),  # Intel's driver takes empty for "no mask"
        ("default", None),
        ("0", (0,)),
        ("1, 0", (0, 1)),  # a mask has no order
        ("0,0", (0,)),
        ("0.1,0.0", ("0.0", "0.1")),
        ("1,0.1", ("0.1", 1)),
        ("00.01", ("0.1",)),
        ("-1", ()),
        ("0,-1", (0,)),
    ],
)
def test_level_zero(value, ids):
    assert parse_visible_devices("level-zero", value).ids == ids


@pytest.mark.parametrize(
    ("value", "ids"), [("", ()), ("  ", ()), ("3,1", (3, 1)), ("3, 1", (3, 1))]
)
def test_indices(value, ids):
    assert parse_visible_devices("indices", value).ids == ids


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("", ()),
        ("3", (3,)),
        ("0-3", (0, 1, 2, 3)),
        ("2-2", (2,)),
        ("3,1", (3, 1)),
        ("0-1, 6", (0, 1, 6)),
    ],
)
def test_ranges(value, ids):
    assert parse_visible_devices("ranges", value).ids == ids


@pytest.mark.parametrize("value", ["3-1", "0-", "-1", "0-1-2", "0-3,2", "x", "0-99999"])
def test_ranges_that_select_nothing_certain(value):
    with pytest.raises(SettingError, match="expected indices or inclusive ranges"):
        parse_visible_devices("ranges", value)


@pytest.mark.parametrize(
    ("grammar", "value", "note"),
    [
        ("cuda", "0,-1,1", "'-1' ends the list"),
        ("cuda", "0,0", "'0' is listed twice"),
        ("cuda", "", ""),
        ("cuda", "0,1", ""),
        ("level-zero", "0,-1", "'-1' is not a device"),
    ],
)
def test_a_note_says_where_the_list_ends_and_why(grammar, value, note):
    assert parse_visible_devices(grammar, value).note == note


@pytest.mark.parametrize(
    "value", ["", "8", "0,0", "-1", "a", "0,", U1, "0,1,2,3,4,5,6,7,8"]
)
def test_modules_refuses_what_the_bridge_refuses(value):
    with pytest.raises(SettingError, match="module ids from 0 to 7"):
        parse_visible_devices("modules", value)


@pytest.mark.parametrize("value", ["x", "0,", "0.1.2", ",", "0.", " ", "-x"])
def test_level_zero_refuses_the_rest(value):
    with pytest.raises(SettingError, match=r"device\.tile"):
        parse_visible_devices("level-zero", value)


@pytest.mark.parametrize("value", ["0,0", "-1", "x", "0,", U1])
def test_indices_refuses_the_rest(value):
    with pytest.raises(SettingError, match="expected indices"):
        parse_visible_devices("indices", value)


def test_an_unknown_grammar_is_refused_with_the_known_ones():
    with pytest.raises(
        SettingError,
        match="unknown visible-devices grammar 'tpu', expected one of cuda",
    ):
        parse_visible_devices("tpu", "0")


@pytest.mark.parametrize(
    ("grammar", "value", "note", "suggestion"),
    [
        ("cuda", "0-3", "'0-3' is read as 0", "0,1,2,3"),
        ("cuda", "0 1", "'0 1' is read as 0", "0,1"),
        ("cuda", "0;1", "'0;1' is read as 0", "0,1"),
        ("cuda", "[0,1]", "'[0' ends the list", "0,1"),
        ("cuda", "'0,1'", '"\'0" ends the list', "0,1"),
        ("cuda", "cuda:1", "'cuda:1' ends the list", "1"),
        ("cuda", "0-9", "'0-9' is read as 0", "0,1,2,3"),
        ("cuda", "1gpu2", "'1gpu2' is read as 1", "1"),
        ("ascending", "0-3", "'-3' ends the list", "0,1,2,3"),
        ("mlu", "0:3", "'0:3' ends the list", "0,1,2,3"),
        ("cuda", " 0, +1", "", ""),
    ],
)
def test_a_value_is_mended_from_what_was_meant(grammar, value, note, suggestion):
    visibility = Visibility(("ACME_MASK",), grammar=grammar)
    backend = Backend("acme", 1, "acme", visibility=visibility)
    found = read_visible_devices(backend, {"ACME_MASK": value}, Inventory(4))
    assert found.effects[0].ignored == note
    assert found.effects[0].suggestion == suggestion
