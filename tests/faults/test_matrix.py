"""Whatever a plugin does, the right backend is chosen, a verdict says why, the process stays the user's.

Everything runs in session `faults`, which records docs/evidence/fault-matrix.json; here each fault, each
place and each command runs once.
"""

import os
import sys

import pytest
from accel_faults import record
from accel_faults.catalogue import FAULTS, Fault, Kind
from accel_faults.cells import DIAGONAL, OF_DOCTOR, OF_LAUNCHER, PLACES, QUICK
from accel_faults.modes import Mode, run
from accel_faults.rules import wrong
from accel_tests.children import SIMULATED

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="what a cell leaves is read in /proc"
)


def _id(one):
    return one.name if isinstance(one, Fault) else one.value


@pytest.fixture
def check_against_rules(tmp_path, bare_sys_path):
    """Run a fault in a place in these modes, and hold each against the rules."""

    def check(fault, place, modes, torch):
        seen = run(fault, place, modes, tmp_path, [*bare_sys_path, str(torch)])
        if folder := os.environ.get(record.FOLDER):
            record.keep(folder, fault, place, seen)
        found = {mode.value: wrong(fault, place, mode, seen[mode]) for mode in modes}
        found = {mode: what for mode, what in found.items() if what}
        assert not found, "\n".join(
            f"{mode}: {'; '.join(what)}" for mode, what in found.items()
        )

    return check


@pytest.mark.faults
@pytest.mark.parametrize("place", PLACES, ids=_id)
@pytest.mark.parametrize("fault", FAULTS, ids=_id)
def test_every_fault_in_every_place(check_against_rules, fault, place):
    check_against_rules(fault, place, QUICK, SIMULATED)


@pytest.mark.faults
@pytest.mark.parametrize(("fault", "place"), OF_LAUNCHER, ids=_id)
def test_the_launcher(check_against_rules, fault, place, libraries):
    check_against_rules(fault, place, [Mode.DRY_RUN], libraries[1])


@pytest.mark.faults
@pytest.mark.parametrize(("fault", "place"), OF_DOCTOR, ids=_id)
def test_the_doctor(check_against_rules, fault, place):
    check_against_rules(fault, place, [Mode.DOCTOR], SIMULATED)


def test_the_diagonal_passes_everything_once():
    faults, places, modes = map(set, zip(*DIAGONAL, strict=True))
    assert faults == set(FAULTS)
    assert places == set(PLACES)
    assert modes == set(QUICK)
    assert {(fault.kind, mode.is_program) for fault, _, mode in DIAGONAL} >= {
        (Kind.DIES, True), (Kind.DIES, False), (Kind.DISTURBS, True), (Kind.DISTURBS, False),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "place", "mode"),
    DIAGONAL,
    ids=[f"{f.name}, {p.value}, {m.value}" for f, p, m in DIAGONAL],
)
def test_diagonal(check_against_rules, fault, place, mode):
    check_against_rules(fault, place, [mode], SIMULATED)
