"""Every plugin's whole interface, run on a module that has exactly what the vendor's surface has."""

from __future__ import annotations

import contextlib
import inspect
import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from accel_contracts.exercise import exercise, members  # noqa: E402
from accel_testing import surfaces  # noqa: E402
from accel_testing.recorder import Recorder  # noqa: E402

from accel_core import Accelerator, Backend, TorchAccelerator  # noqa: E402


def test_it_uses_only_what_its_vendor_has(plugin, runs):
    mine = runs["plain"][plugin.name]
    assert mine
    for each in mine:
        assert "error" not in each, each["error"]
        assert each["violations"] == [], each["run"]
        assert each["problems"] == [], each["run"]
        assert "skipped" not in each
        # A device module that nobody asked for anything would pass as well.
        assert sum(path.startswith("torch.") for path in each["called"]) >= 15


def test_every_member_is_called():
    public = {name for name in dir(Accelerator) if not name.startswith("_")} | {"name", "backend"}
    assert public == members()


@pytest.fixture
def recorder():
    return Recorder(surfaces.load("mlu"), conditional=False)


@pytest.fixture
def mlu(recorder):
    return recorder.modules["torch.mlu"]


def test_it_offers_the_surface_and_no_more(mlu):
    written = surfaces.load("mlu").modules["torch.mlu"]
    assert {name for name, entry in written.items() if not entry.condition} <= set(vars(mlu))
    more = {name for name in vars(mlu) if not name.startswith("__")} - set(written)
    assert more == set()


def test_signatures_are_those_of_the_surface(mlu):
    assert str(inspect.signature(mlu.get_rng_state)) == "(device='mlu')"
    assert list(inspect.signature(mlu.graph).parameters) == [
        "mlu_graph",
        "pool",
        "stream",
        "capture_error_mode",
    ]
    assert list(inspect.signature(mlu.Stream().wait_event).parameters) == ["event"]


def ours(code: str, **names: object) -> None:
    """Run `code` as accel_core or a plugin would: the recorder keeps what those do wrong."""
    exec(compile(code, "<ours>", "exec"), {"__name__": "accel_ours", **names})


@pytest.mark.parametrize(
    ("code", "violation"),
    [
        ("mlu.empty_cashe()", "torch.mlu.empty_cashe is not in"),
        ("mlu.cnpx.range_pup()", "torch.mlu.cnpx.range_pup is not in"),
        ("try:\n mlu.empty_cashe()\nexcept Exception: pass", "torch.mlu.empty_cashe is not in"),
        (
            "try:\n mlu.synchronize(0, 1)\nexcept Exception: pass",
            "torch.mlu.synchronize(device=None): too many",
        ),
        ("try:\n mlu.Event(timing=True)\nexcept TypeError: pass", "unexpected keyword argument 'timing'"),
        ("try:\n mlu.Stream().wait_event()\nexcept TypeError: pass", "missing a required argument: 'event'"),
    ],
)
def test_what_it_keeps(recorder, mlu, code, violation):
    with contextlib.suppress(AttributeError, TypeError):
        ours(code, mlu=mlu)
    [kept] = recorder.violations
    assert violation in kept


@pytest.mark.parametrize(
    "code",
    [
        "getattr(mlu, 'empty_cashe', None)",
        "hasattr(mlu, 'empty_cashe')",
        "mlu.synchronize(); mlu.synchronize(0); mlu.synchronize(device=0)",
        "mlu.Stream(device=0, priority=1, stream_id=3)",
        "mlu.graph(mlu.MLUGraph(), stream=None)",
    ],
)
def test_what_is_in_order(recorder, mlu, code):
    ours(code, mlu=mlu)
    assert recorder.violations == []


def test_what_torch_itself_does_is_torchs_affair(recorder, mlu):
    with pytest.raises(AttributeError):
        exec("mlu.not_there", {"__name__": "torch.random", "mlu": mlu})
    assert recorder.violations == []


def test_conditional_names_come_and_go():
    def hpu(conditional: bool) -> ModuleType:
        return Recorder(surfaces.load("hpu"), conditional=conditional).modules["torch.hpu"]

    assert hasattr(hpu(True), "HPUGraph")
    assert not hasattr(hpu(False), "HPUGraph")


def test_generators_appear_when_the_runtime_starts(mlu):
    assert mlu.default_generators == ()
    mlu.init()
    assert len(mlu.default_generators) == 2


class Careless(TorchAccelerator):
    def total_memory(self, device_index: int | None = None) -> int:
        return int(self.backend.no_such_field)  # type: ignore[attr-defined]

    def manual_seed(self, seed: int) -> None:
        raise RuntimeError("no device")


def test_faults_are_told_from_a_missing_device(monkeypatch, recorder):
    monkeypatch.setattr(torch, "mlu", recorder.modules["torch.mlu"], raising=False)
    monkeypatch.setattr(sys.modules[__name__], "__name__", "accel_careless")
    problems = exercise(Careless(Backend(name="mlu", priority=1, device_type="mlu")))
    assert any(p.startswith("total_memory: AttributeError") and "no_such_field" in p for p in problems)
    assert not any("no device" in p for p in problems)
