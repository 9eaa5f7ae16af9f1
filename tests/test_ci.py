"""`.github/workflows` runs, in jobs, the sessions that `.ci/run` runs one after the other, and more."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RUN, WORKFLOW = ROOT / ".ci" / "run", ROOT / ".github" / "workflows" / "ci.yml"

#: What the half hour of `.ci/run` has no room for.
ONLY_IN_JOBS = (
    "tpu-real",
    "ipex-real",
    "docs",
    "site",
    "deepspeed-oldest",
    "multinode",
    "trainers",
    "integrations",
)

MARK = "pytest.mark.nightly"
#: What sessions all-tests, simulated, deepspeed, trainers, tpu-real and wheels run of it.
WHOLE = ["plugins/accel_rbln", "plugins/accel_tpu"]
WHOLE += [f"tests/{p}" for p in ("cli", "examples", "steps", "test_dev", "wheels")]
WHOLE += [
    f"packages/accel_{p}"
    for p in ("simulated/tests/device", "testing/tests", "tools/tests/setup")
]
WHOLE += [
    f"packages/accel_train/tests/{p}"
    for p in ("commands", "deepspeed", "launch", "ops", "trainers")
]

pytestmark = pytest.mark.skipif(
    not RUN.is_file(), reason="an sdist of accel-core has no CI"
)


def test_both_run_the_same_sessions():
    run, workflow = RUN.read_text(), WORKFLOW.read_text()
    (in_turn,) = re.findall(r"(?m)^sessions=\((.+)\)$", run)
    (in_jobs,) = re.findall(r"(?m)^ +sessions: \[(.+)\]$", workflow)
    # What `site` opens is built by `docs`, which is a part of `test` in `.ci/run`.
    assert sorted(re.findall(r"[\w-]+", in_jobs)) == sorted(
        [*ONLY_IN_JOBS, *in_turn.split()]
    )
    assert re.search(r"(?m)^run test --all\b", run)
    assert re.search(r"(?m)^ +- run: \./dev test --all$", workflow)


def test_what_the_test_session_says_it_leaves_out_is_what_ci_runs_besides():
    source = (ROOT / "noxfile.py").read_text()
    [constant] = re.findall(r"(?ms)^APART = \((.+?)^\)", source)
    said = " ".join(re.findall(r'"(.+)"', constant))
    (in_jobs,) = re.findall(r"(?m)^ +sessions: \[(.+)\]$", WORKFLOW.read_text())
    assert sorted([*said.split(), "docs"]) == sorted(re.findall(r"[\w-]+", in_jobs))


def marked_nightly():
    """The test modules with tests for the night, and their text."""
    texts = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for pattern in ("tests/**/test_*.py", "p*/*/tests/**/test_*.py")
        for path in ROOT.glob(pattern)
        if path != Path(__file__)
    }
    return {name: text for name, text in texts.items() if MARK in text}


def test_each_nightly_mark_has_its_reason():
    with_reason = re.compile(re.escape(MARK) + r'\(\s*reason="[^"]{10,}",?\s*\)')
    texts = marked_nightly()
    assert [
        name
        for name in texts
        if texts[name].count(MARK) != len(with_reason.findall(texts[name]))
    ] == []


def test_the_night_runs_each_test_that_is_marked_for_it():
    """In a folder that nightly.yml names, or that a measured session runs whole; tpu-real does so by day."""
    night = (ROOT / ".github/workflows/nightly.yml").read_text()
    named = [*re.findall(r"\b(?:packages|plugins)(?:/[\w.]+)+", night), *WHOLE]
    assert re.search(
        r"(?m)^ +- all-tests\n +- simulated\n +- deepspeed\n +- trainers$", night
    )
    assert [
        name for name in marked_nightly() if not name.startswith(tuple(named))
    ] == []


def test_without_torch_what_needs_it_is_counted_in_one_line():
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
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert re.search(r"1 passed, .*1 not run without torch", done.stdout), (
        done.stdout + done.stderr
    )
    assert "SKIPPED" not in done.stdout


#: AWS's index has torch-neuronx and lacks what that needs of PyPI, so AWS's instructions name both. On PyPI
#: AWS holds the name with a placeholder.
BESIDE_PYPI = (
    "accel_tools/setup/formats.py",
    "accel_tools/setup/resolving.py",  # which resolves for those commands
    "docs/backends/neuron.md",
    "docs/backends/notes/neuron.md",
    "plugins/accel_neuron/README.md",
)


def test_no_second_index_stands_beside_pypi():
    """pip takes the higher version of two indexes, whatever the name: torch's index brings torch alone."""
    texts = [
        *ROOT.glob(".github/workflows/*.yml"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("p*/*/README.md"),
    ]
    texts += [*ROOT.glob("p*/*/src/**/*.py"), ROOT / "README.md", ROOT / ".ci" / "run"]
    command = re.compile(
        r"(?i)PIP_EXTRA_INDEX_URL|UV_INDEX\b|--extra-index-url|--index="
    )
    found = [text for text in texts if command.search(text.read_text(encoding="utf-8"))]
    assert [str(text) for text in found if not str(text).endswith(BESIDE_PYPI)] == []
    assert (
        "DEV_TORCH_INDEX: https://download.pytorch.org/whl/cpu" in WORKFLOW.read_text()
    )
