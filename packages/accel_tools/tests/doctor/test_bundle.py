"""Files of a visit: whole or not there, and of nobody else's making."""

import logging
import os
import stat
import sys

import pytest
from accel_tests import children

from accel_tools.doctor.bundle import _link, recorded, write


def test_a_file_is_written_as_a_whole_and_replaces_nothing_unasked(tmp_path):
    target = tmp_path / "visit.zip"
    write(str(target), b"first", force=False)
    if os.name == "posix":
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError, match="it exists already"):
        write(str(target), b"second", force=False)
    assert target.read_bytes() == b"first"
    write(str(target), b"second", force=True)
    assert target.read_bytes() == b"second"
    # Nor does one go that came in the last moment, or a link that leads nowhere.
    made = tmp_path / "made"
    made.write_bytes(b"third")
    with pytest.raises(FileExistsError):
        _link(made, target)
    assert target.read_bytes() == b"second"
    made.unlink()
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(FileExistsError):
        write(str(tmp_path / "dangling"), b"x", force=False)
    with pytest.raises(FileNotFoundError):
        write(str(tmp_path / "no folder" / "x"), b"x", force=False)
    assert sorted(os.listdir(tmp_path)) == ["dangling", "visit.zip"]


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from accel_tools.doctor.bundle import write
try:
    write(sys.path[0] + "/visit.zip", b"x" * 5000, force=True)
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits are POSIX's")
def test_a_disk_that_is_full_leaves_nothing_behind_and_the_old_file_whole(tmp_path, base_path):
    """A limit on the size of files: to whoever writes, a disk that takes no more."""
    (tmp_path / "visit.zip").write_bytes(b"old")
    done = children.run(FULL, [tmp_path, *base_path])
    assert done.stdout == "OSError\n", done.stderr
    assert os.listdir(tmp_path) == ["visit.zip"]
    assert (tmp_path / "visit.zip").read_bytes() == b"old"


def test_the_log_is_recorded_and_everything_is_as_it_was(capsys):
    log = logging.getLogger("accel_core.somewhere")
    with recorded() as lines:
        log.debug("a %s", "line")
    log.info("not asked for")
    assert [line.partition("] ")[2] for line in lines] == ["a line"]
    assert capsys.readouterr().err == ""
    assert logging.getLogger("accel_core").handlers == []
