"""Every variable is parsed in one place, forgivingly, and refuses what it cannot understand by name."""

import pytest
from accel_tests import variables

from accel_core import settings
from accel_core.errors import AccelError, SettingError
from accel_core.settings import (
    Pin,
    Settings,
    Variable,
    parse_flag,
    parse_pin,
    parse_whole_number,
    read,
)

FLAG, COUNT = (
    Variable("FLAG", parse_flag, False),
    Variable("LOCAL_SIZE", parse_whole_number, 0),
)
#: Every form in which a setting may be written: case, padding, emptiness. Values by their texts.
READ = [
    *(
        (settings.DS_ACCELERATOR, text, tuple(map(parse_pin, pins)))
        for text, *pins in (
            ("npu", "npu"), ("NPU", "npu"), ("XPU.External", "xpu.external"),
            ("npu@accel-npu", "npu@accel-npu"), (" NPU @ Accel_NPU ", "npu@accel-npu"),
            ("npu,cuda,cpu", "npu", "cuda", "cpu"),
            (" npu , ,CUDA@accel_cuda,", "npu", "cuda@accel-cuda"), ("",), (",",),
        )
    ),
    (settings.ACCEL_ALLOW, "NPU, cpu", (Pin("npu"), Pin("cpu"))),
    (settings.ACCEL_BLOCK, "cuda@Accel_CUDA", (Pin("cuda", "accel-cuda"),)),
    *((FLAG, text, True) for text in ("1", "true", " YES ", "on")),
    *((FLAG, text, False) for text in ("0", "False", "no", "OFF", "", " ")),
    *((settings.ACCEL_STRICT, text, "1") for text in ("1", "true", " YES ", "on")),
    *((settings.ACCEL_STRICT, text, "") for text in ("0", "False", "no", "OFF", "", " ")),
    (settings.ACCEL_STRICT, "Always", "always"),
    (settings.ACCEL_PROBE, " Isolated ", "isolated"),
    (settings.ACCEL_PROBE, "inline", "inline"),
    *((settings.ACCEL_PROBE_TIMEOUT, text, number)
      for text, number in (("10", 10.0), (" 2.5 ", 2.5), ("1e1", 10.0), ("", 60.0))),
    (settings.ACCEL_IMPORT, " torch_acme, a.b ,", ("torch_acme", "a.b")),
    # A launcher sets text, callers get an int.
    *((COUNT, *row) for row in (("0", 0), ("3", 3), (" 12 ", 12), ("", 0))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    READ,
    ids=lambda each: getattr(each, "name", repr(each)),
)
def test_a_variable_is_read_as_its_type(variable, text, value):
    found = variable.read({variable.name: text})
    assert type(found) is type(value)
    assert found == value


SECONDS = "a number of seconds above 0"
REFUSED = [
    *((settings.DS_ACCELERATOR, text, "a backend name, or name@distribution")
      for text in ("npu@", "@accel-npu", "@", "npu,@x", "npu@ ")),
    *((FLAG, text, "1 or 0") for text in ("2", "maybe", "-1", "tru")),
    *((settings.ACCEL_STRICT, text, "1, 0 or always") for text in ("2", "maybe", "-1", "tru")),
    (settings.ACCEL_PROBE, "child", "inline or isolated"),
    *((settings.ACCEL_PROBE_TIMEOUT, text, SECONDS)
      for text in ("abc", "0", "-1", "nan", "inf", "-inf", "1e999", "10 s", "1,5")),
    *((COUNT, text, "a whole number") for text in ("-1", "1.0", "one", "9" * 10)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    REFUSED,
    ids=lambda each: getattr(each, "name", repr(each)),
)
def test_what_is_refused_names_the_variable(variable, text, words):
    with pytest.raises(SettingError) as caught:
        variable.read({variable.name: text})
    assert str(caught.value).startswith(
        f"{variable.name}={text!r} is not valid, expected {words}"
    )
    assert str(caught.value).endswith(f"Correct it, or unset {variable.name}.")
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AccelError)
    assert caught.value.__cause__ is None


def test_settings_are_what_the_variables_say():
    given = {
        "ACCEL_ALLOW": "npu",
        "ACCEL_BLOCK": "cpu",
        "ACCEL_STRICT": "1",
        "ACCEL_PROBE": "isolated",
    }
    assert read({**given, "ACCEL_PROBE_TIMEOUT": "3"}) == Settings(
        request="DS_ACCELERATOR=''", allow=(Pin("npu"),), block=(Pin("cpu"),), strict="1", isolated=True,
        probe_timeout=3.0,
    )  # fmt: skip


def test_a_variable_that_is_nearly_one_of_ours():
    environ = {
        "ACCEL_STRIKT": "1",
        "ACCEL_FROM_ELSEWHERE": "1",
        "ACCEL_BLOCK": "npu",
        "ACCELERATE_X": "1",
    }
    assert read(environ).misspelt == (("ACCEL_STRIKT", "ACCEL_STRICT"),)
    assert read({"ACCEL_IMPORTS": "1"}).misspelt == (("ACCEL_IMPORTS", "ACCEL_IMPORT"),)


def test_variables_of_our_other_distributions_are_not_misspelt():
    ours = [name for name in variables.NAMES if name.startswith("ACCEL_")]
    assert len(ours) > len(settings._READ_ELSEWHERE)
    assert sorted(settings._READ_ELSEWHERE) == sorted(
        set(ours) - {v.name for v in settings.VARIABLES}
    )
    assert read(dict.fromkeys(settings._READ_ELSEWHERE, "1")).misspelt == ()


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
    assert read({}) == Settings(request="DS_ACCELERATOR=''")
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    assert read().pins == (Pin("npu"),)
    assert read().request == "DS_ACCELERATOR='npu'"


def test_the_table_holds_every_variable_once_with_a_line_for_people():
    names = [v.name for v in settings.VARIABLES]
    declared = [
        v.name for v in vars(settings).values() if isinstance(v, settings.Variable)
    ]
    assert sorted(names) == sorted(declared)
    assert len(set(names)) == len(names)
    assert all(v.help.endswith(".") for v in settings.VARIABLES)
