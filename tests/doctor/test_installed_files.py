"""Files of a distribution against the hashes of its RECORD."""

from __future__ import annotations

import base64
import hashlib
import os

import pytest

from accel_core.doctor.installed_files import Compared, compare, owned_by


@pytest.fixture
def site(tmp_path):
    return tmp_path


def recorded(site, files, more=""):
    """A distribution of these files; gives the folder of its metadata."""
    info = site / "card-1.dist-info"
    info.mkdir()
    rows = []
    for name, data in files.items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f'"{name}",sha256={digest},{len(data)}')
    (info / "RECORD").write_text("\n".join([*rows, more]))
    return str(info)


def test_what_was_changed_or_is_missing_is_told(site):
    files = {f"card/{name}": name.encode() * 100 for name in ("same.py", "longer.py", "other.py", "gone,.py")}
    left_alone = "card/x.pyc,,\n../../bin/card,sha256=xx,3\ncard-1.dist-info/METADATA,sha256=xx,1\n"
    info = recorded(site, files, f"{left_alone}card/y.py,md4096=x,1\n")
    (site / "card-1.dist-info/METADATA").touch()
    assert compare(info, None, 10) == Compared(4, 1, ())  # of md4096 nobody knows
    (site / "card/longer.py").write_bytes(b"longer")
    (site / "card/other.py").write_bytes(b"o!her.py" * 100)
    (site / "card/gone,.py").unlink()
    altered = (("card/longer.py", "changed"), ("card/other.py", "changed"), ("card/gone,.py", "missing"))
    assert compare(info, None, 10) == Compared(4, 1, altered)
    os.mkfifo(site / "card/gone,.py")
    assert compare(info, None, 10).altered[-1] == ("card/gone,.py", "no regular file")


def test_large_files_are_asked_for_their_size_alone_and_time_ends_it(site):
    info = recorded(site, {"large.so": b"x" * 5000, "small.py": b"y"})
    (site / "large.so").write_bytes(b"z" * 5000)
    assert compare(info, 1000, 10) == Compared(1, 1, ())
    assert compare(info, None, 10).altered == (("large.so", "changed"),)
    (site / "large.so").write_bytes(b"z" * 5001)
    assert compare(info, 1000, 10).altered == (("large.so", "changed"),)
    assert compare(info, None, 0) == Compared(0, 2, ())


def test_an_editable_installation_has_its_code_elsewhere(site):
    info = recorded(site, {"_card.pth": b"/checkout/src"})
    (site / "_card.pth").write_bytes(b"/moved/src")
    for text, editable in (
        ('{"url": "file:///checkout", "dir_info": {"editable": true}}', True),
        ('{"url": "file:///checkout", "dir_info": {}}', False),
        ("[" * 100_000, False),
        ("7", False),
    ):
        (site / "card-1.dist-info/direct_url.json").write_text(text)
        compared = compare(info, None, 10)
        assert (compared.problem.startswith("it is installed as editable"), bool(compared.altered)) == (
            editable, not editable,
        )  # fmt: skip
    with (site / "card-1.dist-info/RECORD").open("a") as record:
        record.write("\n_editable_impl_card.pth,sha256=x,1\n")
    assert compare(info, None, 10).problem.startswith("it is installed as editable")


def test_a_record_that_cannot_be_read_is_told(site):
    info = recorded(site, {"a.py": b"a"})
    record = site / "card-1.dist-info/RECORD"
    record.unlink()
    assert compare(info, None, 10).problem == "it has no RECORD"
    for made, problem in (
        (lambda: os.mkfifo(record), "it is no regular file"),
        (lambda: record.write_bytes(b"\xff\xfe"), "can't decode"),
        (lambda: record.write_text('"' + "x" * (1 << 18)), "field larger than"),
    ):
        made()
        assert problem in compare(info, None, 10).problem
        assert not owned_by(info, "a")
        record.unlink()
