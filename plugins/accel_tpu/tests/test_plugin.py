"""What is Google's own: which cards are TPUs, a library in place of libtpu, the next step after known errors.

How it is probed is told in `tests/contracts/test_probing.py`, what its members do by its score card.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from accel_core import hint_for
from accel_tpu import BACKEND, accel_backends, accel_probe
from accel_tpu.library import LIBRARY
from accel_tpu.trial import environment


def test_the_declaration():
    """Google's network card, 1ae0:0042, is no TPU; nodes are shared with Gaudi and with any guest's cards."""
    assert (BACKEND.priority, BACKEND.in_torch.private_use1, BACKEND.compile_backend) == (350, True, "tpu")
    assert {entry.partition(":")[0] for entry in BACKEND.hardware.pci_ids} == {"1ae0"}
    assert not {"1ae0", "1ae0:0042"} & set(BACKEND.hardware.pci_ids)
    assert (BACKEND.hardware.nodes, BACKEND.hardware.shared_nodes) == (
        (),
        ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*"),
    )


@pytest.mark.parametrize("value", [None, "", "/usr/lib/libtpu.so"])
def test_libtpu_itself_changes_nothing(monkeypatch, value):
    monkeypatch.delenv(LIBRARY, raising=False)
    if value is not None:
        monkeypatch.setenv(LIBRARY, value)
    assert accel_backends() is BACKEND
    assert accel_probe(BACKEND) is None


def test_a_library_in_place_of_libtpu_needs_no_card(monkeypatch, tmp_path):
    library = tmp_path / "libpjrt_other.so"
    library.write_bytes(b"\x7fELF GetPjrtApi")
    monkeypatch.setenv(LIBRARY, str(library))
    found = accel_backends()
    assert (found.hardware.pci_ids, found.hardware.shared_nodes, found.communication_backend) == (
        (),
        (),
        "staged",
    )
    answer = accel_probe(found)
    assert answer.usable
    assert answer.reason == "TorchTPU on libpjrt_other.so (TPU_LIBRARY_PATH) in place of libtpu"


@pytest.mark.parametrize(
    ("content", "words"), [(None, "is no file"), (b"\x7fELF", "no GetPjrtApi"), (b"", "cannot be read")]
)
def test_a_library_that_torchtpu_could_not_load(monkeypatch, tmp_path, content, words):
    library = tmp_path / "libpjrt_other.so"
    if content is not None:
        library.write_bytes(content)
    monkeypatch.setenv(LIBRARY, str(library))
    answer = accel_probe(BACKEND)
    assert not answer.usable
    assert words in answer.reason
    assert "unset TPU_LIBRARY_PATH" in answer.hint


SEEN = [
    ("ABORTED: The TPU is already in use by process with pid 17", "/tmp/libtpu_lockfile"),
    ("No module named 'libtpu'", "pip install libtpu"),
    (
        "current_device is internal to TorchTPU and can only be called by the PyTorch framework",
        "torch.accelerator",
    ),
    ("cannot access or re-initialize TPU in a forked subprocess", "spawn"),
    ("undefined symbol: _ZN2at", "torch 2.11 to 2.15"),
    ("register_privateuse1_backend() has already been set! Current: npu. privateuse1", "process of its own"),
    ("torch.compile(..., backend='inductor') on TPU is experimental", "get_compile_backend()"),
]


@pytest.mark.parametrize(("message", "hint"), SEEN)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


def test_what_a_trial_lacks_is_named(monkeypatch):
    monkeypatch.setattr("accel_tpu.trial.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"pip install torch-tpu fastatomstruct-xla-cpu$"):
        environment()


def test_a_trial_names_the_library_and_pins_nothing(monkeypatch, tmp_path):
    """DeepSpeed refuses a DS_ACCELERATOR that it does not know."""
    package = tmp_path / "__init__.py"
    monkeypatch.setattr("accel_tpu.trial.find_spec", lambda _: SimpleNamespace(origin=str(package)))
    variables, what = environment()
    assert variables == {LIBRARY: str(tmp_path / "libpjrt_cpu.so"), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert what == f"TorchTPU on XLA's CPU library: {tmp_path}/libpjrt_cpu.so"
