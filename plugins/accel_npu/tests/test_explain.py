"""The next step after the errors that users meet, and CANN's version from its files."""

from dataclasses import replace

import pytest
from accel_tests.asking import verdict_on

import accel_npu
from accel_core import Provenance
from accel_core.build import Group, explain_error
from accel_npu import BACKEND, cann_version


def explained(error, backend=BACKEND):
    """The next step that a user gets: of the plugin's own hook, or of the declaration's hints."""
    named = replace(
        backend, provenance=Provenance("accel-npu", "0.1.0", "npu", "accel_npu")
    )
    verdict = verdict_on(named)
    return explain_error(verdict, error, Group((verdict,))).hint


def test_what_torch_npu_refuses_is_told_before_what_it_also_says():
    """Its refusal names `_autoload` too, which elsewhere means that versions do not fit."""
    message = "Two accelerators cannot be used at the same time in PyTorch (raised in torch_npu._autoload)"
    assert "accel setup npu" in explained(RuntimeError(message))


def test_the_versions_that_do_not_fit_are_named(monkeypatch):
    monkeypatch.setattr(
        accel_npu, "torch_build", lambda: type("Build", (), {"version": "2.12.1+cpu"})
    )
    hint = explained(ImportError("undefined symbol: _ZN3c10"))
    assert "torch 2.12.1: run `accel setup npu`" in hint


def test_the_script_beside_cann_is_named(monkeypatch, tmp_path):
    (tmp_path / "set_env.sh").write_text("")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "latest"))
    assert f"`source {tmp_path}/set_env.sh`" in explained(
        ImportError("libhccl.so: cannot open")
    )


def test_without_cann_that_is_the_cause(monkeypatch):
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.setattr(accel_npu, "cann_setup_step", lambda: "install CANN")
    found = accel_npu.accel_explain(BACKEND, ImportError("libhccl.so: cannot open"))
    assert found.reason.endswith("needs CANN, which is not installed")
    assert found.hint == "install CANN"


def test_with_cann_the_library_is_the_cause(monkeypatch):
    monkeypatch.setattr(accel_npu, "cann_setup_step", lambda: "install CANN")
    monkeypatch.setenv("ASCEND_HOME_PATH", "/x")
    assert (
        accel_npu.accel_explain(BACKEND, ImportError("libhccl.so: cannot open"))
        == "install CANN"
    )


@pytest.mark.parametrize("folder", [".", "x86_64-linux", "aarch64-linux"])
@pytest.mark.parametrize(
    "name", ["ascend_toolkit_install.info", "ascend_nnae_install.info"]
)
def test_canns_version_is_read_from_its_files(monkeypatch, tmp_path, folder, name):
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / name).write_text(
        "package_name=Ascend\nversion=8.3.RC1\ninnerversion=V100R001\n"
    )
    assert cann_version() == "8.3.RC1"
    monkeypatch.setenv("ASCEND_HOME_PATH", "")
    assert cann_version() is None
    monkeypatch.delenv("ASCEND_HOME_PATH")
    assert cann_version() is None


def test_canns_version_is_unknown_without_its_files(monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert cann_version() is None
