"""Each vendor's visible-devices grammar, read and written."""

import pytest

from accel_core.backend import GRAMMARS, Backend, Visibility
from accel_core.errors import AccelError, SettingError
from accel_core.machine.visible_devices import format_visible_devices, hidden_by, parse_visible_devices

U1 = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
U2 = "GPU-74b0a1c9-1b36-4fd2-9e55-0a2a6c1ffb11"
MIG = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"
OLD_MIG = f"MIG-{U1}/1/0"
MLU = "8d0a7b4e-5f11-4cf6-a0bd-3ea8ab1c71c2"


#: What is read of a value in each grammar: `value=ids`, apart by blanks.
READ = {
    # strtoul reads as far as it can; a repeat hides everything, but not one behind the end; kinds do not mix.
    "cuda": f"= 0=0 2,0,1=2,0,1 -1= 0,-1,1=0 0,x,1=0 0,,1=0 +1=1 -0=0 1gpu2,2ampere=1,2 NoDevFiles= "
    f"0,1,0= 0,x,0=0 9999999999= \u00b2= {U1}={U1} {U1},{U2}={U1},{U2} "
    f"GPU-8932,GPU-74b0=GPU-8932,GPU-74b0 {U1},{U1}= "
    f"{U1},1={U1} 0,{U1}=0 {MIG}={MIG} {MIG},{OLD_MIG}={MIG},{OLD_MIG} {MIG},{U1}={MIG}",
    # torch_npu counts no device unless the ids ascend.
    "ascending": "= 0,1,5=0,1,5 1a,2=1 0,1,=0,1 1,0= 0,0= -1= 1234567890=",
    "modules": "0=0 7,6=7,6",
    # No strtoul here; and a UUID that is too short is none.
    "mlu": f"= 3,1=3,1 1gpu= 0,-1,1=0 0,0= {MLU}={MLU} {MLU},{MLU}= {MLU},7={MLU} {MLU[:20]}=",
    # A mask has no order.
    "level-zero": "0=0 0,0=0 0.1,0.0=0.0,0.1 1,0.1=0.1,1 00.01=0.1 -1= 0,-1=0",
    "indices": "= 3,1=3,1",
}
#: Blanks are stripped of indices, not of identifiers; in `ascending` one ends the list. Intel's driver takes
#: nothing for "no mask".
WITH_BLANKS = [
    ("cuda", " ", ()), ("cuda", " 0 , 1 ", (0, 1)), ("cuda", f"{U1}, {U2}", (U1,)),
    ("ascending", "0, 1", (0,)), ("ascending", " 0", ()), ("ascending", "1,0 ,2", ()),
    ("modules", "0, 1", (0, 1)), ("mlu", " 3 ,1", (3, 1)), ("level-zero", "1, 0", (0, 1)),
    ("level-zero", "", None), ("level-zero", "default", None), ("indices", "  ", ()),
    ("indices", "3, 1", (3, 1)),
]  # fmt: skip


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_what_is_read(grammar):
    assert parse_visible_devices(grammar, None).ids is None
    for value, ids in (row.split("=") for row in READ[grammar].split(" ")):
        expected = tuple(int(each) if each.isdecimal() else each for each in ids.split(",") if each)
        assert parse_visible_devices(grammar, value).ids == expected, value
    for _, value, expected in (row for row in WITH_BLANKS if row[0] == grammar):
        assert parse_visible_devices(grammar, value).ids == expected, value


def test_it_says_where_the_list_ends_and_why():
    notes = {"0,-1,1": "'-1' ends the list", "0,0": "'0' is there twice", "": "", "0,1": ""}
    assert {value: parse_visible_devices("cuda", value).note for value in notes} == notes
    assert parse_visible_devices("level-zero", "0,-1").note == "'-1' is not a device"


#: What a vendor refuses, and so do we: values apart by bars.
REFUSED = {
    "modules": (f"|8|0,0|-1|a|0,|{U1}|0,1,2,3,4,5,6,7,8", "module ids from 0 to 7"),
    "level-zero": ("x|0,|0.1.2|,|0.| |-x", r"device\.tile"),
    "indices": (f"0,0|-1|x|0,|{U1}", "expected indices"),
    "tpu": ("0", "unknown visible-devices grammar 'tpu', expected one of cuda"),
}


@pytest.mark.parametrize("grammar", REFUSED)
def test_what_is_refused(grammar):
    values, words = REFUSED[grammar]
    for value in values.split("|"):
        with pytest.raises(SettingError, match=words):
            parse_visible_devices(grammar, value)


def test_format():
    assert format_visible_devices("cuda", ["2", "0"]) == "2,0"
    assert format_visible_devices("ascending", [10, 3, 9]) == "3,9,10"
    assert format_visible_devices("modules", [7, 6]) == "7,6"
    assert format_visible_devices("level-zero", [1, "0.1", 0]) == "0,0.1,1"


#: Ids that are refused in a grammar, and the words.
UNWRITABLE = [
    ("cuda", ([0, U1], [U1, MIG]), "is no value of .* of one kind"),
    ("cuda", ([0, 0], ["0", 0]), "names a device twice"),
    ("cuda", ([-1], [True], [f"{U1},{U2}"], [10**9]), "is not a device"),
    ("cuda", (["cuda:0"],), "'cuda:0' is not a device in grammar 'cuda', expected indices, or GPU-"),
    ("ascending", ([U1],), "is not a device"),
    ("ascending", ([1, 1],), "names a device twice"),
    ("modules", ([8],), "8 is not a device in grammar 'modules'"),
    ("modules", ([],), "is no value of .* module ids"),
    ("mlu", ([MLU, 0],), "is no value of"),
    ("mlu", ([MLU[:20]],), "is not a device"),
    ("level-zero", ([],), "is no value of .* one or more devices"),
    ("level-zero", (["0.1.2"],), "is not a device"),
    ("indices", (["0.1"],), "is not a device"),
]


@pytest.mark.parametrize(("grammar", "refused", "message"), UNWRITABLE)
def test_format_refuses_what_would_mean_something_else(grammar, refused, message):
    for ids in refused:
        with pytest.raises(ValueError, match=message) as caught:
            format_visible_devices(grammar, ids)
        assert isinstance(caught.value, AccelError)


NAMES = ("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
CARD = Backend(name="mlu", priority=1, device_type="mlu", visibility=Visibility(NAMES, grammar="mlu"))
GAUDI = CARD._replace(visibility=Visibility(("HABANA_VISIBLE_MODULES",), grammar="modules"))


def test_what_hides_every_device():
    said = "CUDA_VISIBLE_DEVICES='-1' hides every device: '-1' ends the list"
    assert hidden_by(CARD, {"CUDA_VISIBLE_DEVICES": "-1"}) == said
    assert hidden_by(CARD, {"CUDA_VISIBLE_DEVICES": "0,-1"}) is None
    refused = hidden_by(GAUDI, {"HABANA_VISIBLE_MODULES": ""})
    assert refused.startswith("HABANA_VISIBLE_MODULES='' is not valid: ")
    assert "module ids from 0 to 7" in refused
