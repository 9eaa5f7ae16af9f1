"""The files that a recorded process writes, and that `merge` reads."""

import os
import signal
import sys
from pathlib import Path

import pytest

from accel_simulated.detector.log import MAX_PLACES, NOT_RECORDED, Log
from accel_simulated.detector.merge import merge


def _called_from(file, name, inner, **spec):
    """What `inner` gives when it is called by code of that file and module."""
    code = compile("found = inner()", file, "exec")
    values = {"__name__": name, "inner": inner, **spec}
    exec(code, values)
    return values["found"]


@pytest.mark.parametrize(
    ("source", "is_recorded"),
    [
        ('device = "cuda"', True),
        ("device = f'cuda:{rank}'", True),
        ("device = tensor.device.type", False),
        ("torch.cuda.synchronize()", False),
    ],
)
def test_the_simulated_devices_name_is_recorded_only_if_the_file_contains_it(
    source, is_recorded, tmp_path
):
    """`acc.device_name()` returns it on every device."""
    file = tmp_path / "program.py"
    file.write_text(f"{source}\n")
    log = Log(str(tmp_path), simulated_type="cuda")
    counter = _called_from(
        str(file),
        "program",
        lambda: log.record(sys._getframe(1), "device", '"cuda"', "cuda", "cuda"),
    )
    assert (counter != NOT_RECORDED) is is_recorded


def test_files_of_killed_processes_and_full_tables_are_merged(tmp_path):
    """Whole, though it is killed; what a killed one wrote by half is left out; a full table says so."""
    log = Log(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    log.record(sys._getframe(), "call", "torch.cuda.before()", "cuda")
    child = os.fork()
    if not child:
        for number in range(3):
            for _ in range(number + 1):
                log.record(sys._getframe(), "call", f"torch.cuda.f{number}()", "cuda")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    counter = log.record(sys._getframe(), "call", "torch.cuda.f2()", "cuda")
    log.record_error(counter, "ValueError: first")
    log.record_error(counter, "ValueError: second")
    for number in range(MAX_PLACES):
        log.record(sys._getframe(), "call", f"{number}", "cuda")
    (tmp_path / "torn.jsonl").write_text('{"pid": 1}\n{"place": 0, "fi')
    (tmp_path / "torn.counts").write_bytes(b"")

    report = merge(tmp_path, Path(__file__).parent, ["x"], "acme:2", 0)
    # The torn file lists nothing.
    assert report.processes == 2
    assert report.notes == [f"the places after the first {MAX_PLACES} in a process"]
    assert [
        place.times for place in report.places if place.what == "torch.cuda.before()"
    ] == [1]
    found = {
        (place.what, place.line): place for place in report.places if ".f" in place.what
    }
    assert sorted((place.what, place.times) for place in found.values()) == [
        ("torch.cuda.f0()", 1), ("torch.cuda.f1()", 2), ("torch.cuda.f2()", 1), ("torch.cuda.f2()", 3),
    ]  # fmt: skip
    assert {place.file for place in found.values()} == {Path(__file__).name}
    assert [place.raised for place in found.values() if place.raised] == [
        "ValueError: first"
    ]
    assert all("log.record(" in place.text for place in found.values())
    assert (
        len(report.places) == MAX_PLACES + 3
    )  # two of the child's are its own, and the full table has the rest


def test_a_process_continues_if_the_folder_was_removed(tmp_path):
    """As when a daemon outlives the command: it goes on."""
    log = Log(str(tmp_path / "gone"))
    for _ in range(2):
        counter = log.record(sys._getframe(), "call", "torch.cuda.f()", "cuda")
        assert counter == NOT_RECORDED
    log.add_note("nothing")
