"""What is Google's own: which cards are TPUs, a library in place of libtpu, the next step after known errors.

What its members do is told by its score card.
"""

from types import SimpleNamespace

import pytest

from accel_tpu import BACKEND, accel_backends, accel_probe
from accel_tpu.library import LIBRARY_VARIABLE
from accel_tpu.trial import environment


@pytest.mark.parametrize("value", [None, "", "/usr/lib/libtpu.so"])
def test_libtpu_itself_changes_nothing(monkeypatch, value):
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(LIBRARY_VARIABLE, value)
    assert accel_backends() is BACKEND
    assert accel_probe(BACKEND) is None


def test_a_library_in_place_of_libtpu_needs_no_card(monkeypatch, tmp_path):
    library = tmp_path / "libpjrt_other.so"
    library.write_bytes(b"\x7fELF GetPjrtApi")
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library))
    found = accel_backends()
    assert not found.hardware.pci_ids
    assert not found.hardware.shared_nodes
    assert found.communication_backend == "staged"
    answer = accel_probe(found)
    assert answer.usable
    assert (
        answer.reason
        == "TorchTPU runs on libpjrt_other.so (TPU_LIBRARY_PATH) instead of libtpu"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"\x7fELF", "the function GetPjrtApi is missing"),
        (b"", "cannot be read"),
    ],
)
def test_a_library_that_torchtpu_could_not_load(monkeypatch, tmp_path, content, words):
    library = tmp_path / "libpjrt_other.so"
    if content is not None:
        library.write_bytes(content)
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library))
    answer = accel_probe(BACKEND)
    assert not answer.usable
    assert words in answer.reason
    assert "unset TPU_LIBRARY_PATH" in answer.hint


def test_what_a_trial_lacks_is_named(monkeypatch):
    monkeypatch.setattr("accel_tpu.trial.find_spec", lambda _: None)
    with pytest.raises(
        ImportError, match=r"pip install torch-tpu fastatomstruct-xla-cpu$"
    ):
        environment()


def test_a_trial_names_the_library_and_pins_nothing(monkeypatch, tmp_path):
    """DeepSpeed refuses a DS_ACCELERATOR that it does not know."""
    package = tmp_path / "__init__.py"
    monkeypatch.setattr(
        "accel_tpu.trial.find_spec", lambda _: SimpleNamespace(origin=str(package))
    )
    variables, what = environment()
    assert variables == {
        LIBRARY_VARIABLE: str(tmp_path / "libpjrt_cpu.so"),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    assert what == f"TorchTPU on XLA's CPU library: {tmp_path}/libpjrt_cpu.so"
