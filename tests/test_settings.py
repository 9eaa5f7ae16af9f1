"""Every variable is parsed in one place, forgivingly, and refuses what it cannot understand by name."""

import pytest
from accel_tests import variables

from accel_core import settings
from accel_core.errors import AccelError, SettingError
from accel_core.settings import Pin, Settings, Variable, flag, read, whole_number


def pins(text):
    return [str(pin) for pin in read({"DS_ACCELERATOR": text}).pins]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("npu", ["npu"]),
        ("NPU", ["npu"]),
        ("XPU.External", ["xpu.external"]),
        ("npu@accel-npu", ["npu@accel-npu"]),
        (" NPU @ Accel_NPU ", ["npu@accel-npu"]),
        ("npu,cuda,cpu", ["npu", "cuda", "cpu"]),
        (" npu , ,CUDA@accel_cuda,", ["npu", "cuda@accel-cuda"]),
        ("", []),
        (",", []),
    ],
)
def test_ds_accelerator_in_all_its_forms(text, expected):
    """USERS 33: name, case, padding, emptiness."""
    assert pins(text) == expected


@pytest.mark.parametrize("text", ["npu@", "@accel-npu", "@", "npu,@x", "npu@ "])
def test_half_a_pin_is_refused(text):
    with pytest.raises(SettingError) as caught:
        pins(text)
    message = str(caught.value)
    assert f"DS_ACCELERATOR={text!r} is not valid" in message
    assert "expected a backend name, or name@distribution" in message
    assert "unset DS_ACCELERATOR" in message
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AccelError)


FLAGS = {True: ("1", "true", " YES ", "on"), False: ("0", "False", "no", "OFF", "", " ")}


@pytest.mark.parametrize(("text", "expected"), [(text, flag) for flag in FLAGS for text in FLAGS[flag]])
def test_flags(text, expected):
    assert Variable("FLAG", flag, False).read({"FLAG": text}) is expected
    assert read({"ACCEL_STRICT": text}).strict == ("1" if expected else "")


@pytest.mark.parametrize("text", ["2", "maybe", "-1", "tru"])
def test_a_flag_is_one_or_zero(text):
    with pytest.raises(SettingError, match=f"FLAG='{text}' is not valid, expected 1 or 0"):
        Variable("FLAG", flag, False).read({"FLAG": text})
    with pytest.raises(SettingError, match=f"ACCEL_STRICT='{text}' is not valid, expected 1, 0 or always"):
        read({"ACCEL_STRICT": text})


def test_strict_always():
    assert read({"ACCEL_STRICT": "Always"}).strict == "always"


def test_a_variable_that_is_nearly_one_of_ours():
    environ = {"ACCEL_STRIKT": "1", "ACCEL_FROM_ELSEWHERE": "1", "ACCEL_BLOCK": "npu", "ACCELERATE_X": "1"}
    assert read(environ).misspelt == (("ACCEL_STRIKT", "ACCEL_STRICT"),)
    assert read({"ACCEL_COMPILED": "1"}).misspelt == (("ACCEL_COMPILED", "ACCEL_COMPILE"),)


def test_what_others_read_is_not_misspelt():
    ours = [name for name in variables.NAMES if name.startswith("ACCEL_")]
    assert len(ours) > len(settings._ELSEWHERE)
    assert sorted(settings._ELSEWHERE) == sorted(set(ours) - {v.name for v in settings.VARIABLES})
    assert read(dict.fromkeys(settings._ELSEWHERE, "1")).misspelt == ()


def test_what_is_to_be_imported_is_modules_by_comma():
    assert settings.ACCEL_IMPORT.read({"ACCEL_IMPORT": " torch_acme, a.b ,"}) == ("torch_acme", "a.b")


def test_the_probe_mode():
    assert read({"ACCEL_PROBE": " Isolated "}).isolated is True
    assert read({"ACCEL_PROBE": "inline"}).isolated is False
    with pytest.raises(SettingError, match="ACCEL_PROBE='child' is not valid, expected inline or isolated"):
        read({"ACCEL_PROBE": "child"})


@pytest.mark.parametrize(("text", "expected"), [("10", 10.0), (" 2.5 ", 2.5), ("1e1", 10.0), ("", 60.0)])
def test_the_probe_timeout(text, expected):
    assert read({"ACCEL_PROBE_TIMEOUT": text}).probe_timeout == expected


@pytest.mark.parametrize("text", ["abc", "0", "-1", "nan", "inf", "-inf", "1e999", "10 s", "1,5"])
def test_a_timeout_is_a_number_of_seconds(text):
    with pytest.raises(SettingError) as caught:
        read({"ACCEL_PROBE_TIMEOUT": text})
    assert f"ACCEL_PROBE_TIMEOUT={text!r} is not valid" in str(caught.value)
    assert "a number of seconds above 0" in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(("text", "expected"), [("0", 0), ("3", 3), (" 12 ", 12), ("", 0)])
def test_a_launchers_numbers_become_int(text, expected):
    """USERS 34: what a launcher sets is text, what callers get is an int."""
    value = Variable("LOCAL_RANK", whole_number, 0).read({"LOCAL_RANK": text})
    assert value == expected
    assert type(value) is int


@pytest.mark.parametrize("text", ["-1", "1.0", "one", "9" * 10])
def test_a_count_is_a_whole_number(text):
    with pytest.raises(SettingError, match=f"LOCAL_SIZE='{text}' is not valid, expected a whole number"):
        Variable("LOCAL_SIZE", whole_number, 0).read({"LOCAL_SIZE": text})


def test_allow_and_block_are_lists_of_pins():
    found = read({"ACCEL_ALLOW": "NPU, cpu", "ACCEL_BLOCK": "cuda@Accel_CUDA"})
    assert found.allow == (Pin("npu"), Pin("cpu"))
    assert found.block == (Pin("cuda", "accel-cuda"),)


@pytest.mark.parametrize(
    ("allow", "block", "expected"),
    [
        ((), (), True),
        ((Pin("npu"),), (), True),
        ((Pin("cuda"),), (), False),
        ((), (Pin("npu"),), False),
        ((Pin("npu"),), (Pin("npu"),), False),
        ((Pin("npu", "other"),), (), False),
        ((), (Pin("npu", "other"),), True),
        ((Pin("npu", "accel-npu"),), (), True),
    ],
)
def test_the_policy_over_one_backend(allow, block, expected):
    assert Settings(allow=allow, block=block).permits("npu", "Accel_NPU") is expected


def test_a_pin_without_a_distribution_means_any():
    assert Pin("npu").matches("npu", "whatever")
    assert Pin("npu", "accel-npu").matches("npu", "Accel.NPU")
    assert not Pin("npu", "accel-npu").matches("npu", "other")
    assert not Pin("npu").matches("cuda", "accel-npu")


def test_nothing_set_gives_the_defaults_and_the_process_is_read_by_default(monkeypatch):
    assert read({}) == Settings(asked="DS_ACCELERATOR=''")
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    assert read().pins == (Pin("npu"),)
    assert read().asked == "DS_ACCELERATOR='npu'"


def test_the_table_holds_every_variable_once_with_a_line_for_people():
    names = [v.name for v in settings.VARIABLES]
    declared = [v.name for v in vars(settings).values() if isinstance(v, settings.Variable)]
    assert sorted(names) == sorted(declared)
    assert len(set(names)) == len(names)
    assert all(v.help.endswith(".") for v in settings.VARIABLES)
