"""What a process tried when it ended is found by the next one, which tries that in a child process first."""

from __future__ import annotations

import os
import signal
import stat
import statistics
import time
from pathlib import Path

import pytest
from accel_testing import plugins
from accel_testing.children import Ended
from accel_testing.plugins import HEAD, arguments, declaring, hook

from accel_core.backend import Provenance
from accel_core.detection import trying
from accel_core.detection.trying import LOADING, PROBING, Note

pytestmark = pytest.mark.skipif(not hasattr(os, "lockf"), reason="locks of lockf(3)")

DIE = "import os; os._exit(3)"
CHOOSE = """
import json, warnings
from accel_core import EarlierCrashWarning, get_accelerator, selection
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    chosen = get_accelerator().name
print(json.dumps({
    "chosen": chosen,
    "warned": [str(w.message) for w in caught if w.category is EarlierCrashWarning],
    "bad": next((v.reason for v in selection().verdicts if v.name == "bad"), ""),
}))
"""


@pytest.fixture
def notes(world, tmp_path, monkeypatch):
    """The folder of notes, in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "accel-core" / "trying"


def choose(world, **variables: str) -> Ended:
    return world.child(CHOOSE, variables=variables, strict=False)


def left(notes: Path) -> list[str]:
    return sorted(path.name for path in notes.iterdir()) if notes.exists() else []


@pytest.mark.parametrize(
    ("step", "at"),
    [
        ("import", "import of accel_bad, the plugin of accel-bad 1.0"),
        ("accel_backends", "accel_backends() of accel-bad 1.0"),
        ("device_count", "device_count() of accel-bad 1.0"),
    ],
)
def test_the_next_process_survives_what_ended_the_first_and_says_so(world, notes, step, at):
    world.backend("card", 300)
    if step == "import":
        world.plugin("bad", f"{DIE}\n")
    elif step == "accel_backends":
        world.plugin("bad", HEAD + hook("accel_backends", "", DIE))
    else:
        world.module("bad_device", plugins.ACCELERATOR.format(count=DIE))
        world.backend("bad", 990, accelerator="bad_device:Simulated")
    first = choose(world)
    assert (first.returncode, first.stdout) == (3, "")
    assert len(left(notes)) == 1
    for _ in range(2):  # for as long as it lasts
        second = choose(world).answer
        assert second["chosen"] == "card"
        assert f"exited with status 3 at: {at}; an earlier process (number " in second["bad"]
        (warned,) = second["warned"]
        assert warned.startswith("bad (accel-bad 1.0) was tried in a child process first: an earlier process")
        assert warned.endswith(f"died at: {at}")
        assert len(left(notes)) == 1
    assert choose(world, RANK="1", LOCAL_RANK="1").answer["warned"] == []
    # Mended in place: tried in a child once more, and then forgotten.
    world.module("bad_device", plugins.ACCELERATOR.format(count="return 1"))
    world.backend("bad", 990, accelerator="bad_device:Simulated")
    assert choose(world).answer["chosen"] == "bad"
    assert left(notes) == []


def test_a_clean_choice_leaves_nothing_and_one_without_plugins_makes_no_folder(world, notes):
    assert choose(world).answer == {"chosen": "cpu", "warned": [], "bad": ""}
    assert not notes.parent.exists()
    world.backend("card", 300)
    world.plugin("bad", "raise OSError('broken')")
    assert choose(world).answer["chosen"] == "card"
    assert left(notes) == []
    assert stat.S_IMODE(notes.stat().st_mode) == 0o700


def test_another_version_is_another_matter(world, notes):
    world.plugin("bad", DIE)
    assert choose(world).returncode == 3
    (world.site / "accel_bad-1.0.dist-info").rename(world.site / "accel_bad-1.0.old")
    world.plugin("bad", declaring(arguments("bad", 990)), version="1.1")
    answer = choose(world).answer
    assert (answer["chosen"], answer["warned"]) == ("bad", [])
    assert left(notes) == []


# --- the note itself -----------------------------------------------------------------------------------

SOURCE = Provenance("accel-bad", "1.0", "bad", "accel_bad")
OTHER = Provenance("accel-good", "2.0", "good", "accel_good")


def die(step: str = "import of accel_bad", source: Provenance = SOURCE, kind: str = LOADING) -> None:
    """Leave the note of a process that has ended."""
    child = os.fork()
    if child == 0:
        Note(10).step(source, source.entry_point, kind, step)
        os._exit(0)
    os.waitpid(child, 0)


def test_a_living_process_is_not_taken_for_a_dead_one(notes):
    """Of 64 ranks one dies; nobody's process number tells which."""
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        Note(10).step(OTHER, "good", LOADING, "import of accel_good")
        if os.fork() == 0:  # what it forks outlives it, and does not keep its note alive
            time.sleep(5)
            os._exit(0)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    die()
    with Note(10) as note:
        assert note.earlier(OTHER, LOADING) is None
        assert note.earlier(SOURCE, LOADING).step == "import of accel_bad"
        assert note.earlier(SOURCE, PROBING) is None
    assert len(left(notes)) == 2
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    with Note(10) as note:
        assert note.earlier(OTHER, LOADING).name == "good"
    for end in (*ready, *go):
        os.close(end)


def test_a_fork_in_the_middle_leaves_its_parents_note_alone(notes):
    with Note(10) as note:
        note.step(SOURCE, "bad", PROBING, "import of torch_bad")
        before = (notes / left(notes)[0]).read_bytes()
        child = os.fork()
        if child == 0:
            note.step(SOURCE, "bad", PROBING, "in the child")
            note.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        assert (notes / left(notes)[0]).read_bytes() == before
        assert stat.S_IMODE((notes / left(notes)[0]).stat().st_mode) == 0o600
    assert left(notes) == []


def test_a_shorter_step_is_not_mixed_with_the_longer_one_before(notes):
    child = os.fork()
    if child == 0:
        note = Note(10)
        note.step(SOURCE, "bad", PROBING, "a long step\n\nof several lines\x1b[31m" * 5)
        note.step(SOURCE, "bad", PROBING, "short")
        os._exit(0)
    os.waitpid(child, 0)
    with Note(10) as note:
        assert note.earlier(SOURCE, PROBING).step == "short"


def test_many_notes_of_one_death_become_one_and_old_ones_go(notes, monkeypatch):
    for _ in range(5):
        die()
    with Note(10) as note:
        assert note.earlier(SOURCE, LOADING)
        assert len(left(notes)) == 1
    monkeypatch.setattr(trying, "_OLD", -1)
    with Note(10) as note:
        assert note.earlier(SOURCE, LOADING) is None
    assert left(notes) == []


def test_what_survived_here_is_remembered_for_another_host_for_a_day(notes, monkeypatch):
    die()
    monkeypatch.setattr(trying, "_host", lambda: "another")
    for kept, day in ((1, trying._DAY), (0, -1)):
        monkeypatch.setattr(trying, "_DAY", day)
        with Note(10) as note:
            assert note.earlier(SOURCE, LOADING)
            note.survived(SOURCE, LOADING)
        assert len(left(notes)) == kept


@pytest.mark.parametrize(("patience", "kept"), [(60, 0), (0, 1)])
def test_an_interrupt_of_what_hangs_leaves_the_note(notes, patience, kept):
    def interrupted() -> None:
        with Note(patience) as note:
            note.step(SOURCE, "bad", PROBING, "import of torch_bad")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(left(notes)) == kept
    with Note(10) as note:  # this process lives, and knows better than to try that again
        assert bool(note.earlier(SOURCE, PROBING)) == bool(kept)


HOSTILE = ["garbage", "huge", "binary", "symlink", "fifo", "folder", "empty"]


def plant(path: Path, kind: str) -> None:
    later = int(time.time()) + 100
    good = f"{trying._MARK}\naccel-bad\n1.0\nbad\nloading\nhost\n1\n{later}\nstep\n\n"
    if kind == "symlink":
        path.parent.with_name("target").write_text(good)
        path.symlink_to(path.parent.with_name("target"))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        texts = {"garbage": "what\never", "huge": good + "x" * 10_000, "empty": ""}
        path.write_bytes(b"\xff\xfe\0" if kind == "binary" else texts[kind].encode())


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_note_is_passed_over(notes, kind):
    notes.mkdir(parents=True, mode=0o700)
    plant(notes / "0000000000000000", kind)
    die()
    with Note(10) as note:
        assert note.earlier(SOURCE, LOADING).host == trying._host()
        note.step(SOURCE, "bad", LOADING, "import of accel_bad")


def no_home(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)


def in_a_file(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.parent.parent.write_text("")


def a_link(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.parent.mkdir(parents=True)
    (notes.parent / "elsewhere").mkdir()
    notes.symlink_to(notes.parent / "elsewhere")


def of_others(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.mkdir(parents=True)
    notes.chmod(0o777)


def no_parent(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(notes / "a" / "b"))


def full(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_space)


def no_locks(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "lockf")


@pytest.mark.parametrize("spoil", [no_home, in_a_file, a_link, of_others, no_parent, full, no_locks])
def test_where_no_note_can_be_kept_nothing_happens(notes, monkeypatch, spoil):
    spoil(notes, monkeypatch)
    descriptors = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else None
    with Note(10) as note:
        assert note.earlier(SOURCE, LOADING) is None
        note.step(SOURCE, "bad", LOADING, "import of accel_bad")
        note.step(SOURCE, "bad", PROBING, "import of torch_bad")
    assert left(notes) == [] or spoil is no_parent
    assert not (notes.parent / "elsewhere").exists() or left(notes.parent / "elsewhere") == []
    if descriptors is not None:
        assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_kill_at_any_moment_leaves_a_note_that_can_be_read(world, notes):
    world.plugin("bad", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert choose(world).returncode == -signal.SIGKILL
    assert choose(world).answer["bad"].startswith("the process that loaded its plugin died of SIGKILL")


def test_it_costs_next_to_nothing(notes):
    """0.2 ms a choice is what it may take; this machine may be busy, and so the median of many."""

    def once() -> float:
        start = time.perf_counter()
        with Note(10) as note:
            for source in (SOURCE, OTHER):
                note.earlier(source, LOADING)
                note.step(source, source.entry_point, LOADING, "import of the plugin")
                note.step(source, source.entry_point, LOADING, "accel_backends()")
                note.survived(source, LOADING)
        return time.perf_counter() - start

    assert statistics.median(once() for _ in range(200)) < 1e-3
    assert left(notes) == []
