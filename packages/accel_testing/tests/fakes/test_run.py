"""A child sees what is installed and nothing that steers; and the documents' tests for fakes pass."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from accel_tests import processes
from accel_tests.children import SIMULATED

import accel_core
from accel_core import Backend, ChildError, InvalidArgumentError
from accel_core.interface.cpu import CPUAccelerator
from accel_testing import (
    FakeAccelerator,
    Fault,
    fake,
    installed,
    run,
    write_distribution,
)

# ---------------------------------------------------------------------------- run
# A child sees what is installed and nothing that steers, ends with all it started, and says why it fails.


TOLD = """
import json, accel_core
found = [each for each in accel_core.discover() if each.backend is not None]
print(json.dumps([accel_core.get_accelerator().name, [str(c.provenance) for c in found if not c.builtin]]))
"""


def test_a_child_has_what_is_installed(torch_world, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    with installed(fake("acme"), version="1.0", isolated=True):
        assert run(TOLD, path=[SIMULATED]).answer == ["acme", ["accel-fake-acme 1.0"]]
        listed = run(
            [sys.executable, "-m", "accel_core", "list", "--json"], path=[SIMULATED]
        ).stdout
        assert '"accel-fake-acme"' in listed
    backend = Backend(
        name="acme", priority=900, device_type="cpu", vendor_import="json"
    )
    with installed(
        backend, accelerator=CPUAccelerator(backend), version="1.0", isolated=True
    ):
        assert accel_core.get_accelerator().name == "acme"
        code = (
            "import accel_core\n"
            "found = [each for each in accel_core.discover() if each.name == 'acme']\n"
            "print([f'{each.reason}. {each.hint}' for each in found])"
        )
        said = run(code, path=[SIMULATED]).stdout
        assert "was installed by a test of another process" in said
        assert "give its class" in said


def test_a_vendor_that_kills_the_process_ends_the_program_but_an_isolated_one():
    code = "import accel_core; print(accel_core.get_accelerator().name)"
    with installed(fake("acme", Fault("vendor_import", exits=7)), isolated=True):
        ended = run(code, path=[SIMULATED], check=False)
        assert (ended.returncode, ended.stdout) == (7, "")
        assert (
            run(code, variables={"ACCEL_PROBE": "isolated"}, path=[SIMULATED]).stdout
            == "cpu\n"
        )


@pytest.mark.skipif(sys.platform != "linux", reason="who is left is read in /proc")
def test_it_ends_with_all_that_it_started(tmp_path, monkeypatch):
    mark = f"OF_THIS_TEST={os.getpid()}"
    code = "import os, time\nprint('begun', flush=True)\nif os.fork(): time.sleep(600)\ntime.sleep(600)"
    begun = time.monotonic()
    ended = run(
        code, variables=dict([mark.split("=")]), timeout=1, check=False, cwd=tmp_path
    )
    assert (ended.late, ended.stdout) == (True, "begun\n")
    assert "killed after 1 s" in ended.stderr
    with pytest.raises(ChildError, match=r"too slow.*\n--- stdout\nbegun"):
        ended.succeeded()
    monkeypatch.setattr("accel_testing.children._OUTPUT_SECONDS", 0.2)
    # One that goes on by itself does not, though the child has ended well.
    on = "import os, time\nif not os.fork(): [os.close(n) for n in range(3)]; time.sleep(60)"
    run(on, variables=dict([mark.split("=")]))
    # One that has left the group, and holds the output open, is waited for no longer than that.
    away = (
        "import os, time\nif os.fork(): os._exit(0)\n"
        "os.setsid(); print(os.getpid(), flush=True); time.sleep(60)"
    )
    os.kill(int(run(away, timeout=1, check=False).stdout), signal.SIGKILL)
    assert time.monotonic() - begun < 30
    assert not processes.left_of(mark)


FORKED = """
import os, accel_core
from accel_testing import fake, installed
block = installed(fake("acme"), isolated=True)
folder = block.__enter__().folder
child = os.fork()
if not child:
    found = [each for each in accel_core.discover() if each.backend is not None]
    seen = [each.name for each in found if not each.builtin]
    block.__exit__(None, None, None)
    os._exit(seen != ["acme"])
status = os.waitpid(child, 0)[1]
print([status, folder.is_dir() and 1])
block.__exit__(None, None, None)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_it_and_leaves_it_to_its_parent():
    assert run(FORKED).answer == [0, 1]


def test_what_a_child_said_is_in_the_error():
    with pytest.raises(AssertionError) as raised:
        run(
            "import os, sys; print('so far'); sys.stdout.flush(); os.write(2, b'caf\\xe9'); sys.exit(3)"
        )
    assert isinstance(raised.value, ChildError)
    for text in ("status 3, expected 0", "so far", "caf\ufffd"):
        assert text in str(raised.value)
    with pytest.raises(ChildError, match="SIGKILL"):
        run("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(ChildError, match="ANSWER is followed by no JSON"):
        _ = run("print('ANSWER no')").answers
    assert run("print('ANSWER 1ANSWER [2]')").answers == [1, [2]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: run([]), "expected Python source"),
        (lambda: run("", timeout="1"), "timeout='1'"),
        (lambda: run("", variables={"A": 1}), "'A' is 1"),
    ],
)
def test_what_cannot_be_run_is_told(call, said):
    with pytest.raises(InvalidArgumentError) as raised:
        call()
    assert said in str(raised.value)


def test_a_distribution_is_written_where_one_wants_it(world, tmp_path):
    folder = write_distribution(
        tmp_path / "site",
        "accel-acme",
        "1.2",
        {"accel.backends": {"acme": "accel_acme"}},
        {"accel_acme": ""},
    )
    world.set_path([folder])
    assert "accel-acme 1.2" in [str(c.provenance) for c in accel_core.discover()]


# ---------------------------------------------------------------------------- page
# The tests that the documents show for fakes pass as they stand there, in a folder of their own.


PAGE = Path(__file__).parents[4] / "docs" / "howto" / "test-without-a-device.md"


@pytest.mark.skipif(not PAGE.exists(), reason="a source distribution has no documents")
def test_each_example_passes(torch_world, tmp_path):
    fakes, _, _ = PAGE.read_text(encoding="utf-8").partition(
        "\n## A simulated device\n"
    )
    blocks = re.findall(r"```python\n(.*?)```", fakes, re.DOTALL)
    folder = tmp_path / "project"
    folder.mkdir()
    for number, block in enumerate(blocks):
        (folder / f"test_{number}.py").write_text(block)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        ".",
    ]
    # As on the machine of whoever has pinned something else, and blocks it all.
    user = {"DS_ACCELERATOR": "npu", "ACCEL_BLOCK": "acme"}
    said = run(command, path=[SIMULATED], variables=user, cwd=folder).stdout
    assert said.splitlines()[-1].startswith(
        f"{len(re.findall(r'def test_', ''.join(blocks)))} passed"
    )


# ---------------------------------------------------------------------------- real torch
# A fake computes: what is trained on it is trained.


@installed(fake("acme", devices=2), isolated=True)
def test_a_model_trains_on_a_fake_and_compiles_with_it():
    torch = pytest.importorskip("torch")
    acc = accel_core.get_accelerator()
    assert isinstance(acc, FakeAccelerator)
    acc.set_device(1)
    x, y = (
        torch.ones(8, 2, device=acc.device()),
        torch.zeros(8, 1, device=acc.device_name(1)),
    )
    model = torch.nn.Linear(2, 1).to(acc.device(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        acc.synchronize()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 100
    assert [call.member for call in acc.calls].count("synchronize") == 20
    assert "acme (a fake: " in acc.device_properties().name
    acc.calls.clear()

    @torch.compile(fullgraph=True, backend="eager")
    def step(given):
        return given.to(acc.device_name()) + acc.device_count()

    assert step(torch.ones(1)).tolist() == [3.0]
    assert acc.calls == []  # it was traced, and not called
