"""`.github/workflows` runs, in jobs, the sessions that `.ci/run` runs one after the other, and more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RUN, WORKFLOW = ROOT / ".ci" / "run", ROOT / ".github" / "workflows" / "ci.yml"

#: What the half hour of `.ci/run` has no room for.
ONLY_IN_JOBS = ("tpu_real", "docs", "site", "deepspeed_oldest", "multinode", "trainers", "doors")

pytestmark = pytest.mark.skipif(not RUN.is_file(), reason="an sdist of accel-core has no CI")


def test_both_run_the_same_sessions() -> None:
    run, workflow = RUN.read_text(), WORKFLOW.read_text()
    in_turn = re.findall(r"(?m)^sessions=\((.+)\)$", run)
    in_jobs = re.findall(r"(?m)^ +sessions: \[(.+)\]$", workflow)
    assert len(in_turn) == len(in_jobs) == 1
    # What `site` opens is built by `docs`, which is a part of `test` in `.ci/run`.
    assert sorted(re.findall(r"\w+", in_jobs[0])) == sorted([*ONLY_IN_JOBS, *in_turn[0].split()])
    assert re.search(r"(?m)^run test --all\b", run)
    assert re.search(r"(?m)^ +- run: \./dev test --all$", workflow)


def test_what_the_test_session_says_it_leaves_out_is_what_ci_runs_besides() -> None:
    source = (ROOT / "noxfile.py").read_text()
    (said,) = re.findall(r'(?m)^APART = "(.+)"', source)
    (in_jobs,) = re.findall(r"(?m)^ +sessions: \[(.+)\]$", WORKFLOW.read_text())
    assert sorted([*said.split(), "docs"]) == sorted(re.findall(r"\w+", in_jobs))


def test_without_torch_what_needs_it_is_counted_in_one_line() -> None:
    code = (
        "import sys, pytest; sys.modules['torch'] = None; sys.path.insert(0, 'tests/support'); "
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    tests = [
        "packages/accel_train/tests/launch/test_communication.py",
        "tests/test_ci.py",
        "-k",
        "same or communication",
    ]
    command = [sys.executable, "-c", code, "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.search(r"1 passed, .*1 not run without torch", done.stdout), done.stdout + done.stderr
    assert "SKIPPED" not in done.stdout


def test_no_second_index_stands_beside_pypi() -> None:
    """pip takes the higher version of two indexes, whatever the name: torch's index brings torch alone."""
    texts = [
        *ROOT.glob(".github/workflows/*.yml"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("p*/*/README.md"),
    ]
    texts += [*ROOT.glob("p*/*/src/**/*.py"), ROOT / "README.md", ROOT / ".ci" / "run"]
    command = re.compile(r"(?i)PIP_EXTRA_INDEX_URL|UV_INDEX\b|--extra-index-url|--index=")
    assert [str(text) for text in texts if command.search(text.read_text(encoding="utf-8"))] == []
    assert "DEV_TORCH_INDEX: https://download.pytorch.org/whl/cpu" in WORKFLOW.read_text()
