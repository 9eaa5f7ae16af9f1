"""`./dev` installs the torch that `accel setup` answers: from which index, for which machine."""

import functools
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from accel_tests.archives import of_wheel
from accel_tests.tools import load

torch_build = load("torch_build")

TORCH = "2.13.0"
H100 = {"pci": ["10de:2330/030200"], "nvidia": "550.54.15"}
#: Machines, and the build that is asked for.
MACHINES = [
    ("NVIDIA GPU", H100, "cu129"),
    ("CPU, as none for the NVIDIA GPU is known", {"pci": ["10de:2330/030200"]}, "cpu"),
]


class Index(http.server.ThreadingHTTPServer):
    """An index for each build, with one empty wheel named torch; `asked` has the paths of the requests."""

    def __init__(self, folder):
        self.asked = []
        for build in ("cpu", "cu129"):
            name, wheel = (
                f"torch-{TORCH}+{build}-py3-none-any.whl",
                of_wheel("torch", f"{TORCH}+{build}"),
            )
            file = {
                "filename": name,
                "url": f"/{build}/{name}",
                "hashes": {},
                "size": len(wheel),
            }
            page = {
                "meta": {"api-version": "1.1"},
                "name": "torch",
                "versions": [],
                "files": [file],
            }
            (folder / build / "torch").mkdir(parents=True)
            (folder / build / "torch/index.html").write_text(json.dumps(page))
            (folder / build / name).write_bytes(wheel)
        super().__init__(("127.0.0.1", 0), functools.partial(_Answer, directory=folder))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}/{torch_build.BUILD}"


class _Answer(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012
        ".html": "application/vnd.pypi.simple.v1+json",
        "": "application/zip",
    }

    def log_message(self, *_):
        self.server.asked.append(self.path)


@pytest.fixture
def index(monkeypatch, tmp_path_factory):
    """A mirror of PyTorch's indexes on loopback; uv and pip are configured with nothing."""
    for name in [*os.environ]:
        if name.startswith(("UV_", "PIP_")):
            monkeypatch.delenv(name)
    with Index(tmp_path_factory.mktemp("index")) as server:
        monkeypatch.setenv("DEV_TORCH_INDEX", server.address)
        yield server
        server.shutdown()


def uv():
    return str(pytest.importorskip("uv").find_uv_bin())


@pytest.mark.parametrize(("target", "machine", "build"), MACHINES)
def test_a_machine_gets_the_build_that_setup_answers(
    index, described_machine, target, machine, build, tmp_path
):
    source = torch_build.source(TORCH, machine=described_machine(machine))
    assert source.index == index.address.replace(torch_build.BUILD, build)
    assert f"the build for the {target}" in source.why
    assert index.asked == [f"/{build}/torch/"]
    assert torch_build.options(source, with_uv=False) == [
        "--index-url",
        source.index,
    ]  # pip's
    command = [
        uv(),
        "pip",
        "install",
        "--no-cache",
        "--python",
        sys.executable,
        f"torch=={TORCH}",
    ]
    command += [
        "--target",
        str(tmp_path / "home"),
        *torch_build.options(source, with_uv=True),
    ]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "home" / f"torch-{TORCH}+{build}.dist-info").is_dir()
    assert {path.split("/")[1] for path in index.asked} == {build}


#: A machine, the version of a wheel of torch on the disk, and where torch comes from then.
PLACES = {
    "a GPU, and the CPU build on the disk": (
        H100,
        f"{TORCH}+cpu",
        "the build for the NVIDIA GPU",
    ),
    "no GPU, and the CPU build on the disk": (
        {},
        f"{TORCH}+cpu",
        "from a wheel on this disk",
    ),
    "a Mac": (
        {"system": "darwin", "architecture": "arm64"},
        "",
        "the Apple GPU, from where pip takes packages",
    ),
    "Windows": (
        {"system": "win32", "architecture": "AMD64"},
        "",
        "the CPU, from where pip takes packages",
    ),
}


@pytest.mark.parametrize(("machine", "on_disk", "where"), PLACES.values(), ids=PLACES)
def test_an_index_is_asked_only_where_no_other_place_has_the_build(
    index, described_machine, machine, on_disk, where
):
    source = torch_build.source(TORCH, on_disk, described_machine(machine))
    needs_index = machine is H100
    assert bool(source.index) is needs_index
    assert bool(index.asked) is needs_index
    assert source.is_second_best is False
    assert where in source.why


def test_an_index_that_is_named_is_not_asked(monkeypatch):
    monkeypatch.setenv("DEV_TORCH_INDEX", "http://127.0.0.1:9/mine")
    assert torch_build.source(TORCH).index == "http://127.0.0.1:9/mine"


def test_an_index_that_is_silent_is_waited_for_and_left(monkeypatch, described_machine):
    monkeypatch.setattr(torch_build, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(
            "DEV_TORCH_INDEX", f"http://127.0.0.1:{silent.getsockname()[1]}/{{build}}"
        )
        began = time.monotonic()
        source = torch_build.source(TORCH, machine=described_machine({}))
    assert time.monotonic() - began < 5
    assert source.index == ""
    assert source.is_second_best
    assert "/cpu, which does not answer: " in source.why


def test_the_size_is_told_before_the_download(index, monkeypatch, tmp_path):
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(f"torch=={TORCH}\n")
    monkeypatch.setenv(
        "UV_DEFAULT_INDEX", index.address.replace(torch_build.BUILD, "cpu")
    )
    assert torch_build.weight(uv(), ["torch"], constraints).startswith(
        "to download: 0.0 GB"
    )
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/")
    assert "nobody can say" in torch_build.weight(uv(), ["torch"], constraints)


def test_what_lies_on_disk_is_found_without_an_index(index, monkeypatch, tmp_path):
    assert torch_build.on_disk(uv(), TORCH) == ""
    (tmp_path / f"torch-{TORCH}+cpu-py3-none-any.whl").write_bytes(
        of_wheel("torch", f"{TORCH}+cpu")
    )
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    assert torch_build.on_disk(uv(), TORCH) == f"{TORCH}+cpu"
    assert index.asked == []
