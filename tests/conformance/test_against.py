"""`accel verify --against`: what of a plugin another release of accel-core would not call, or otherwise."""

from __future__ import annotations

import importlib.machinery
import inspect
import io
import json
import zipfile
from pathlib import Path

import pytest
from accel_testing import children
from accel_testing.layouts import GROUP, dist_info, metadata_text
from accel_testing.plugins import HEAD, arguments, declaring, hook

import accel_core
from accel_core import InvalidBackendError, Provenance, SettingError, Status, Unloaded
from accel_core.cli.against import answer
from accel_core.cli.output import Output
from accel_core.conformance import used
from accel_core.conformance.against import against, compare
from accel_core.conformance.described import describe, narrower, parsed, written
from accel_core.detection.discovery import builtin_candidates
from accel_core.detection.records import Outcome

#: Another release: of each thing that ours has a little less, or something else.
CORE = """
__version__ = "9.9"
API_LEVEL = 3
__all__ = ["Accelerator", "API_LEVEL", "Backend", "TorchAccelerator", "__version__"]

class Backend:
    name: str
    priority: int
    device_type: str
    vendor_import: str = "torch"
    accelerator: str = ""
    api_level: int = 1

class Accelerator:
    def __init__(self, backend: Backend, heat: int) -> None: ...
    def device_count(self) -> int: ...
    def current_device(self) -> int: ...
    def synchronize(self, device_index=None, *, soon: bool = False) -> None: ...
    def export_envs(self, *, every: bool = False) -> list[str]: ...
    @property
    def total_memory(self) -> int: ...
    def spin(self) -> None: ...

class TorchAccelerator(Accelerator): ...
"""
HOOKS = """
def accel_backends(): ...
def accel_explain(backend): ...
def helper(): ...
accel_backends.accel_spec = accel_explain.accel_spec = {}
"""
DEVICE = """
from accel_core import Accelerator

class Base(Accelerator):
    def __init__(self, backend):
        super().__init__(backend)
    def device_count(self):
        return 1
    def current_device(self):
        return self._index(None) + self._own()
    def set_stream(self, stream):
        super().set_stream(stream)

class Acme(Base):
    def synchronize(self, device_index=None):
        pass
    def export_envs(self, **more):
        return []
    def total_memory(self, device_index=None):
        return 1
    def _own(self):
        return 0
"""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder with another release of the core."""
    package = tmp_path / "release" / "src" / "accel_core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(CORE)
    (package / "hookspecs.py").write_text(HOOKS)
    return tmp_path / "release"


def wheel(folder: Path, release: Path) -> Path:
    """That release as a wheel."""
    path = folder / "accel_core-9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("__init__.py", "hookspecs.py"):
            archive.write(release / "src/accel_core" / name, f"accel_core/{name}")
        archive.writestr("accel_core-9.9.dist-info/METADATA", metadata_text("accel-core", "9.9"))
        archive.writestr("accel_core-9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("accel_core-9.9.dist-info/RECORD", "")
    return path


@pytest.mark.slow
def test_what_another_release_does_otherwise(release: Path, tmp_path: Path) -> None:
    given = arguments(
        "acme", accelerator="acme_device:Acme", api_level=2, hints=(("a", "b"),), hardware="Acme GPU"
    )
    source = (
        declaring(given).replace(HEAD, f"{HEAD}from accel_core import Check, Evidence\n")
        + hook("accel_checks", "backend", "return []")
        + hook("accel_explain", "backend, error", "return None")
        + "\n@hookimpl(optionalhook=True)\ndef accel_melt(backend):\n    return None\n"
    )
    folder = tmp_path / "site"
    dist_info(
        folder, "accel-acme", "1.0", {GROUP: {"acme": "accel_acme"}},
        {"accel_acme": source, "acme_device": DEVICE},
    )  # fmt: skip

    def verify(*words: str) -> children.Ended:
        environ = children.clean_environment(PYTHONPATH=str(folder))
        command = ["-m", "accel_core", "verify", "acme", *words]
        return children.run_python(command, environ, cwd=tmp_path)

    done = verify("--json", "--against", str(release))
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["against"] == {"version": "9.9", "api_level": 3}
    assert document["unread"] == ""
    no = "accel-core 9.9 has no such"
    assert [tuple(row.values()) for row in document["differences"]] == [
        ("refused", "Backend.hardware", f"{no} field"),
        ("refused", "Backend.hints", f"{no} field"),
        ("refused", "accel_checks", f"{no} hook"),
        ("refused", "accel_explain", "accel-core 9.9 gives it no error, but backend"),
        *(("fails", f"accel_core.{name}", f"{no} name")
          for name in ("Check", "Evidence", "ProbeResult", "hookimpl")),
        ("not called", "set_stream", f"{no} member"),
        ("called otherwise", "synchronize",
         f"it takes no soon; {SYNCHRONIZE}"),
        ("called otherwise", "total_memory", "it is a method, and an attribute in accel-core 9.9"),
        ("fails", "self._index", f"{no} member"),
    ]  # fmt: skip
    # A vendor's class that cannot be imported here is said, with what could be looked at.
    (folder / "acme_device.py").write_text("raise OSError('libacme.so: no such file')")
    done = verify("--against", str(wheel(tmp_path, release)))
    assert done.returncode == 1
    assert "Backend.hints  accel-core 9.9 has no such field" in done.stdout
    assert "could not be looked at: OSError: libacme.so: no such file" in done.stdout
    assert "--against runs no check: leave" in verify("--against", "x", "--list").stderr


SYNCHRONIZE = "accel-core 9.9 has synchronize(self, device_index = None, *, soon: bool = False) -> None"
BUILTIN = builtin_candidates()[0]


def test_the_release_that_is_here_does_nothing_otherwise() -> None:
    page = io.StringIO()
    here = str(Path(accel_core.__file__).parents[1])
    assert answer(BUILTIN, here, Output(page), as_json=False) == 0
    level = f"accel-core {accel_core.__version__}, API level {accel_core.API_LEVEL}"
    assert page.getvalue().strip() == f"cpu (accel-core {accel_core.__version__}) fits {level}"
    ours = describe()
    (refused,) = compare({"api_level": 9}, ours, ours)
    assert (refused.effect, refused.what) == ("refused", "api_level=9")


def test_the_class_is_that_of_what_the_hook_makes_where_none_is_declared(torch_world) -> None:
    made = "from accel_sim_device import Simulated\nreturn Simulated(backend)"
    torch_world.backend("made", accelerator="", extra=hook("accel_create", "backend", made))
    torch_world.backend("plain", accelerator="")
    torch_world.backend("other", accelerator="json:JSONDecoder")
    torch_world.plugin("later", "from accel_core import Heat")

    def look(name: str) -> dict[str, object]:
        return used.look({"name": name, "distribution": ""}, lambda what, seconds=None: None)

    assert list(look("made")["overrides"]) == ["current_device", "device_count"]
    assert (look("plain")["overrides"], look("plain")["hooks"]) == ({}, {"accel_backends": []})
    assert look("other")["unread"] == "TypeError: json:JSONDecoder is no class of accel_core.Accelerator"
    assert "cannot import name 'Heat'" in str(look("later")["unread"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("numpy==2.0", "expected accel-core==VERSION, or the path of a wheel or of a folder"),
        ("accel-core = 1", "expected accel-core==VERSION"),
        ("accel-core @ file:///x.whl", "expected accel-core==VERSION"),
        ("none.whl", "there is no such file; expected accel-core==VERSION, or the path"),
        ("{tmp}/none", "there is no such file; expected accel-core==VERSION, or the path"),
        ("{tmp}", "expected accel_core, or src/accel_core, in that folder"),
        ("{tmp}/text.whl", "expected a wheel of accel-core: File is not a zip file"),
        ("{tmp}/other.whl", "expected a wheel of accel-core, and it has none of it"),
        (
            "{tmp}/broken",
            "what it promises cannot be read: ModuleNotFoundError: No module named 'accel_heat'",
        ),
    ],
)
def test_what_is_no_release_is_said(given: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "text.whl").write_text("text")
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("numpy/__init__.py", "")
    (tmp_path / "broken" / "accel_core").mkdir(parents=True)
    (tmp_path / "broken" / "accel_core" / "__init__.py").write_text("import accel_heat")
    given = given.format(tmp=tmp_path)
    with pytest.raises(SettingError) as caught:
        against(BUILTIN, given)
    assert str(caught.value).startswith(f"--against {given}: ")
    assert said in str(caught.value)


def test_a_plugin_that_cannot_be_read_is_said_with_the_next_step() -> None:
    outcome = Outcome(Status.INCOMPATIBLE, "it needs another accel-core", "pip install --upgrade accel-core")
    plugin = Unloaded("acme", Provenance("accel-acme", "1.0"), outcome)
    with pytest.raises(InvalidBackendError) as caught:
        answer(plugin, "accel-core==9.9", Output(None), as_json=False)
    said = (
        "acme (accel-acme 1.0) cannot be read: it needs another accel-core. pip install --upgrade accel-core"
    )
    assert str(caught.value) == said


@pytest.mark.slow
def test_a_release_by_its_version_is_what_pip_finds(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.machinery.PathFinder.find_spec("pip") is None:
        pytest.skip("pip is not installed beside the tests")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel(tmp_path, release).parent))
    assert against(BUILTIN, "accel-core==9.9").version == "9.9"
    with pytest.raises(SettingError) as caught:
        against(BUILTIN, "accel-core==9.8")
    assert "accel-core==9.8: pip did not get it: Could not find a version that satisfies" in str(caught.value)
    assert "give the path of its wheel" in str(caught.value)


def one(a, /, b: int, c: str = "x", *rest, d, e=None, **more) -> bool: ...
def two(self, *, named: int = 3) -> None: ...


@pytest.mark.parametrize("function", [one, two, lambda: None, Path.glob, str.join], ids=lambda f: f.__name__)
def test_a_signature_is_read_as_it_was_written(function) -> None:
    signature = parsed(written(function))
    assert signature is not None
    kinds = [(p.name, p.kind, p.default is p.empty) for p in signature.parameters.values()]
    theirs = inspect.signature(function).parameters.values()
    assert kinds == [(p.name, p.kind, p.default is p.empty) for p in theirs]
    assert list(narrower(signature, signature)) == []
