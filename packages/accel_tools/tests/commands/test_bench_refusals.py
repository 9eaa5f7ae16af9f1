"""`accel bench`: what cannot be measured is one error, before anything is measured."""

import pytest
from click.testing import CliRunner

from accel_core.cli import accel as app
from accel_tools.commands import bench

#: Arguments that cannot be served, and what the one error says; the files are in the folder of the test.
REFUSED = {
    "an earlier run that is not one": (
        ["--plot", "a.txt", "--compare", "broken.json"],
        "the file is not the output of `accel bench --json`",
    ),
    "an earlier run that is not there": (
        ["--compare", "none.json"],
        "the file cannot be read: No such file or directory",
    ),
    "an unknown kind of picture": (
        ["--plot", "plot.pdf"],
        "expected a file name that ends in one of .svg, .png, .txt",
    ),
    "a picture without matplotlib": (
        ["--plot", "plot.svg"],
        "pip install 'accel-tools[plot]'",
    ),
    "a folder that is not there": (
        ["--plot", "none/plot.txt"],
        "cannot be written: No such file or directory",
    ),
    "no rank": (["--ranks", "0"], "0 is not in the range x>=1"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_a_request_that_cannot_be_served_is_one_error_before_anything_is_measured(
    tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        bench, "find_spec", lambda name: None
    )  # matplotlib is not installed
    monkeypatch.setattr(
        bench, "run_in_child", lambda *_, **__: pytest.fail("it began to measure")
    )
    (tmp_path / "broken.json").write_text('{"schema')
    done = CliRunner(env={"COLUMNS": "80"}).invoke(
        app, ["bench", *arguments], prog_name="accel"
    )
    assert done.exit_code == 2, done.output
    assert done.output.count("Error:") == 1
    assert message in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["broken.json"], (
        "it left a file behind"
    )


def test_an_unknown_name_is_refused_as_info_refuses_it(accel):
    bench, info = (
        accel(command, "npuu", watched=frozenset({"torch"}))
        for command in ("bench", "info")
    )
    assert "no installed distribution declares npuu" in bench.stderr
    assert "accel bench npuu: " in bench.stderr
    assert bench.returncode == info.returncode
    assert bench.stdout == info.stdout
    assert bench.stderr.replace("accel bench", "accel info") == info.stderr


def test_the_document_of_an_unknown_name_has_the_type_of_the_error(accel):
    document = accel.json("bench", "npuu", status=2)
    assert document["error"]["type"] == "BackendNotFoundError"


def test_torch_is_not_imported_for_a_request_that_is_refused(accel):
    wrong = accel("bench", "--plot", "plot.pdf", watched=frozenset({"torch"}))
    assert wrong.returncode == 2
    assert wrong.stderr.endswith("loaded: []")


WITHOUT_ANSWER = [
    (
        "device_count(self): return 0",
        "card has no device on this machine, so there is nothing to measure. Next step: accel why card",
    ),
    (
        "current_device(self): raise OSError('wedged')",
        "card cannot list its devices: OSError: wedged. Next step: accel info card",
    ),
]


@pytest.mark.parametrize(("member", "message"), WITHOUT_ANSWER)
def test_a_backend_without_a_device_that_answers_is_told(accel, member, message):
    accel.install_card(more=f"def {member}")
    done = accel("bench", "card")
    assert done.returncode == 1
    assert f"Error: {message}" in done.stderr
