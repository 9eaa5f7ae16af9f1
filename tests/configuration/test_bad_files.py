"""What a file cannot say is one error that names the file and the line; nothing that lies there hangs."""

from __future__ import annotations

import os
import sys
import time

import pytest

from accel_core import configuration
from accel_core.errors import SettingError

posix = pytest.mark.skipif(sys.platform == "win32", reason="no owners and modes of POSIX, no FIFOs")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('\nblok = ["npu"]', "line 2: 'blok' is no setting of accel-core. Did you mean 'block'?"),
        ("probe_timeout = 1", "line 1: 'probe_timeout' is no setting of accel-core. Did you mean 'probe-tim"),
        ('ACCEL_BLOCK = ["x"]', "'ACCEL_BLOCK' is no setting of accel-core. Did you mean 'block'?"),
        ("zebra = 1", "'zebra' is no setting of accel-core. There are: accelerator, "),
        ('[policy]\nblock = ["x"]', ": 'policy' is no setting of accel-core."),
        ('block = "npu"', "line 1: block = 'npu': expected a list of names. Correct it."),
        ('block = ["npu", 3]', "block = ['npu', 3]: expected a list of names"),
        ('block = ["npu,cuda"]', "expected a list of names"),
        ('block = [""]', "expected a list of names"),
        ('allow = ["npu@"]', "allow = ['npu@'] is not valid, expected a backend name, name@distribution, or"),
        ("accelerator = true", "accelerator = true: expected a text or a list of names"),
        ('accelerator = "@acme"', "accelerator = '@acme' is not valid, expected a backend name, or name@dis"),
        ("strict = 1", "strict = 1: expected true or false or a text"),
        ('strict = "perhaps"', "strict = 'perhaps' is not valid, expected 1, 0 or always"),
        ("probe-timeout = true", "probe-timeout = true: expected a number"),
        ("probe-timeout = nan", "probe-timeout = nan is not valid, expected a number of seconds above 0"),
        ("probe-timeout = 1979-05-27", "probe-timeout = a date: expected a number"),
        ('compile = "yes"', "compile = 'yes': expected true or false"),
        ("strict = true\nstrict = true", "line 2: not TOML: Cannot overwrite a value"),
        ("\n\nblock = [", "line 3: not TOML: "),
        ("strict = tru", "line 1: not TOML: Invalid value"),
        ('cache = "x"', "line 1: cache is not read from a project's file, which may come from anyw"),
        ('block = ["x"]\nlock = ["block"]', "line 2: a project locks nothing."),
        ("lock = 3", "lock = 3: expected a list of settings' names"),
        ("x = " + "[" * 100_000, "cannot be read as TOML: "),
        ("x = " + "9" * 5000, "cannot be read as TOML: "),
    ],
)  # fmt: skip
def test_what_a_file_cannot_say_is_one_error_that_names_its_line(levels, text, message):
    file = levels.write("project", text)
    with pytest.raises(SettingError) as caught:
        levels.read()
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lock_names_what_its_file_sets(levels):
    levels.write("site", 'block = ["x"]\nlock = [\n  "probe",\n]\n')
    with pytest.raises(SettingError, match=r"line 2: lock names 'probe', which this file does not set"):
        levels.read()


def test_bytes_that_are_no_text_and_a_mark_that_windows_puts_first(levels):
    levels.files["project"].write_bytes(b"\xef\xbb\xbfstrict = true\n")
    assert levels.read().strict == "1"
    levels.files["project"].write_bytes(b'strict = true\nblock = ["\xff"]\n')
    with pytest.raises(SettingError, match=r"accel.toml, line 2: byte 0xff is not UTF-8"):
        levels.read()


def test_a_file_that_is_too_large_is_not_read(levels):
    levels.write("project", "#" * (configuration.LARGEST - 14) + "\nstrict = true")
    assert levels.read().strict == "1"
    levels.write("project", "#" * (configuration.LARGEST - 13) + "\nstrict = true")
    with pytest.raises(SettingError, match=f"has {configuration.LARGEST + 1} bytes, expected at most"):
        levels.read()


@posix
def test_what_is_no_file_never_keeps_anybody_waiting(levels):
    place = levels.files["project"]
    os.mkfifo(place)
    start = time.monotonic()
    with pytest.raises(SettingError, match=r"accel.toml is a FIFO, expected a file"):
        levels.read()
    place.unlink()
    place.mkdir()
    with pytest.raises(SettingError, match=r"accel.toml is a folder, expected a file"):
        levels.read()
    place.rmdir()
    place.symlink_to("/dev/null")
    with pytest.raises(SettingError, match=r"accel.toml is a device, expected a file"):
        levels.read()
    place.unlink()
    os.mkfifo(levels.project / "pyproject.toml")  # others' file: it merely says nothing to us
    assert levels.read().pins == ()
    assert time.monotonic() - start < 5


@posix
def test_a_link_that_leads_nowhere_is_no_missing_file(levels):
    """Else a policy would be off as soon as the disk that it lies on is not there."""
    levels.files["user"].symlink_to("/nonexistent/accel.toml")
    with pytest.raises(SettingError, match=r"cannot be read: No such file or directory. Make it readable"):
        levels.read()
    levels.files["user"].unlink()
    levels.files["user"].symlink_to(levels.files["user"])
    with pytest.raises(SettingError, match=r"cannot be read: Too many levels of symbolic links"):
        levels.read()


@posix
@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read(levels):
    levels.write("user", "strict = true\n").chmod(0)
    with pytest.raises(SettingError, match=r"cannot be read: Permission denied. Make it readable, remove it"):
        levels.read()
