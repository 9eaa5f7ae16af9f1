"""What `accel doctor` looks into: CANN's variables and version."""

import pytest

from accel_npu.checks import check_cann_version, check_variables, explain_missing_cann


@pytest.fixture
def cann(tmp_path, monkeypatch):
    """torch_npu 2.8.0 and a CANN in folders; `cann(version)` writes which one it is."""
    for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    metadata = tmp_path / "site" / "torch_npu-2.8.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    home = tmp_path / "Ascend" / "latest"
    for folder in ("runtime", "compiler", "lib64", "opp"):
        (home / folder).mkdir(parents=True)
    (home.parent / "set_env.sh").touch()

    def of(cann_version, npu="2.8.0"):
        metadata.write_text(f"Metadata-Version: 2.1\nName: torch-npu\nVersion: {npu}\n")
        (home / "ascend_toolkit_install.info").write_text(
            f"package_name=toolkit\nversion={cann_version}\n"
        )

    of.home, of.setenv = home, monkeypatch.setenv
    return of


def test_without_torch_npu_the_variables_are_not_looked_at(cann):
    assert "torch_npu is not installed" in check_variables().what


def test_without_variables_cann_is_missing(cann):
    cann("8.3.RC1")
    found = check_variables()
    assert found.level == "error"
    assert found.what == "torch_npu 2.8.0 needs CANN, which is not installed"
    assert found.step == "accel setup npu"


def test_a_simulated_torch_npu_needs_no_cann(cann):
    cann("8.3.RC1", npu="2.13.0+simulated")
    assert check_variables().level == "ok"
    assert explain_missing_cann() == ""


def test_a_variable_that_leads_to_no_folder_is_named(cann):
    cann("8.3.RC1")
    cann.setenv("ASCEND_HOME_PATH", str(cann.home))
    assert (
        check_variables().what
        == "CANN's variables name folders that do not exist: ASCEND_OPP_PATH"
    )
    assert f"source {cann.home.parent}/set_env.sh" in check_variables().step


def test_a_library_path_without_cann_is_told(cann):
    cann("8.3.RC1")
    cann.setenv("ASCEND_HOME_PATH", str(cann.home))
    cann.setenv("ASCEND_OPP_PATH", str(cann.home / "opp"))
    assert "LD_LIBRARY_PATH does not contain CANN's folders" in check_variables().what


@pytest.fixture
def whole_cann(cann):
    """A CANN whose variables are all set."""
    cann("8.3.RC1")
    cann.setenv("ASCEND_HOME_PATH", str(cann.home))
    cann.setenv("ASCEND_OPP_PATH", str(cann.home / "opp"))
    cann.setenv("LD_LIBRARY_PATH", f":/usr/lib:{cann.home}/lib64")
    return cann


def test_variables_that_lead_to_a_whole_cann_are_good(whole_cann):
    assert check_variables().level == "ok"


def test_a_cann_without_its_compiler_is_an_error(whole_cann):
    (whole_cann.home / "compiler").rmdir()
    assert check_variables().level == "error"


RELEASES = [
    ("2.8.0", "8.3.RC1", "ok"),
    ("2.8.0", "8.2.RC1", "warning"),
    ("2.6.0", "8.2.RC1", "ok"),
    ("2.13.0", "8.1.RC1", "warning"),
    ("2.13.0", "9.0.0", "ok"),
    ("2.1.0.post3", "7.0.0", "ok"),  # older than this plugin is for: nothing is known
    ("odd", "8.3.RC1", "ok"),
]


@pytest.mark.parametrize(("npu", "cann_version", "level"), RELEASES)
def test_a_cann_older_than_torch_npu_was_built_for_is_a_warning(
    cann, npu, cann_version, level
):
    cann(cann_version, npu)
    cann.setenv("ASCEND_HOME_PATH", str(cann.home))
    found = check_cann_version()
    assert found.level == level
    assert found.facts == {"torch_npu": npu, "CANN": cann_version}
    assert (found.step != "") is (level == "warning")
