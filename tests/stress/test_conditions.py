"""A choice where a machine has little to give: the same answer, in the process and in children."""

import contextlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from accel_tests import children

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="limits, mounts and users of Linux"
)

#: Chooses, and says what; then every candidate's verdict, as `accel list` has it.
_CHOOSE = """
import json
import accel_core
from accel_core.survey import survey
from accel_core.settings import read
chosen = accel_core.get_accelerator().name
listed = {v.name: f"{v.status.value}: {v.reason}" for v in survey(read()).verdicts}
print(json.dumps({"chosen": chosen, "listed": listed}))
"""


def choose(several, before="", *, path=None, around=(), **variables):
    """The child's answer. `before`: what it does first; `around`: the command that starts it."""
    environ = children.untraced(children.clean_environment(**variables))
    environ = {name: value for name, value in environ.items() if value != "unset"}
    program = children.program(before + _CHOOSE, path or several.path, strict=False)
    command = [*around, sys.executable, *program]
    done = children.run_command(command, environ, timeout=120, cwd=several.root)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert "Traceback" not in done.stderr, done.stderr
    return answer


def right(answer):
    """Whether the device was chosen that works, and is seen to by a child process too."""
    assert answer["chosen"] == "mlu"
    assert answer["listed"]["mlu"] == "usable: "
    assert answer["listed"]["npu"] == "no_device: nothing on the bus"


BACKWARDS = """
import time
now = iter(range(2_000_000_000, 0, -86_400))
time.time = lambda: float(next(now))
time.time_ns = lambda: int(time.time()) * 10**9
"""
#: What a process does first, and its variables.
LITTLE = {
    "64 descriptors": ("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))", {}),
    "a deleted directory": ("import os, tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)", {}),
    "stdout closed": ("import os, sys; out = os.dup(1); os.dup2(2, 1); sys.stdout = os.fdopen(out, 'w')", {}),
    "a clock that goes back": (BACKWARDS, {}),
    "no HOME": ("", {"HOME": "unset"}),
    "a HOME that is not there": ("", {"HOME": "/nowhere/at/all"}),
    "a HOME that is a file": ("", {"HOME": "/etc/passwd"}),
    "LANG=C": ("", {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "no variables at all": ("", dict.fromkeys(os.environ, "unset")),
}  # fmt: skip


@pytest.mark.parametrize(("before", "variables"), LITTLE.values(), ids=LITTLE)
def test_a_process_with_little(several, before, variables):
    right(choose(several, f"{before}\n", **variables))
    assert not [file for file in (several.root / "home").rglob("*") if file.is_file()]


def test_entries_of_the_path_that_nobody_can_read(several):
    """A folder without permission, a file, a loop, one that is gone. On a pipe importlib.metadata hangs."""
    odd = several.root / "odd"
    odd.mkdir()
    (odd / "closed").mkdir(mode=0)
    (odd / "file").write_text("spam")
    (odd / "loop").symlink_to("loop")
    entries = [str(odd / name) for name in ("closed", "file", "loop", "gone")]
    # Root may read what nobody may, until that right is taken from it.
    held = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
    for around in (
        ((), held) if os.geteuid() == 0 and shutil.which("setpriv") else ((),)
    ):
        right(choose(several, path=[*entries, *several.path], around=around))


root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs root"
)


def _in_mounts(script):
    """A command that makes mounts of its own before it starts what follows; skips where that is forbidden."""
    around = ["unshare", "--mount", "sh", "-c", f'{script} && exec "$0" "$@"']
    with contextlib.suppress(FileNotFoundError):
        if (
            subprocess.run(
                [*around, "true"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return around
    pytest.skip("mounts are forbidden here")


@root
@pytest.mark.parametrize("probe", ["", "isolated"])
def test_a_full_disk(several, probe):
    """64 KiB for everything that may be written, and none of it left."""
    home = several.root / "home"
    spare = home / "spare"
    script = (
        f"mount -t tmpfs -o size=64k none {home} && "
        f"{{ head -c 70000 /dev/zero > {spare}; test -s {spare}; }} 2>/dev/null"
    )
    right(
        choose(several, around=_in_mounts(script), TMPDIR=str(home), ACCEL_PROBE=probe)
    )


@root
def test_a_file_system_that_is_read_only(several):
    """Nothing can be written anywhere: a program chooses, and a child cannot be started."""
    script = "for m in / /tmp /dev/shm /var/tmp; do mount --bind $m $m && mount -o remount,ro,bind $m; done"
    answer = choose(several, around=_in_mounts(script))
    assert answer["chosen"] == "mlu"
    assert "No usable temporary directory" in answer["listed"]["mlu"]
