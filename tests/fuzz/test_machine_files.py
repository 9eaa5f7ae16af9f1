"""A file from a stranger: `accel setup --machine` plans for it, or refuses it in a sentence with its name."""

import bz2
import gzip
import itertools
import json
import lzma
import os
import random
import tarfile

import pytest
from accel_tests.archives import of_tar, of_zip
from accel_tests.fuzzing import fuzzed
from click.testing import CliRunner
from hypothesis import strategies as st

from accel_tools.commands import setup

#: Mutations of one example; 15 examples by day make 375, 100 a round by night 2,500.
MANY = 25
_runs = itertools.count()

FILES = {
    "sys/bus/pci/devices/0000:17:00.0/modalias": "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00",
    "sys/module/nvidia/version": "550.54.15",
    "proc/version": "Linux version 6.8.0 aarch64",
    "proc/device-tree/model": "NVIDIA Jetson AGX Orin",
    "sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 90402",
    "usr/local/cuda/version.json": '{"cuda": {"version": "12.8.0"}}',
    "usr/local/Ascend/ascend-toolkit/latest/x86_64-linux/ascend_toolkit_install.info": "version=8.5.0",
    "etc/alpine-release": "3.22.1",
}
STRANGE = ["9" * 5000, "9" * 300 + ".1", "1.2.3.RC1", "\0", "\ud800", "\x1b]0;x\x07", "12.8", "a" * 300]
TEXT = st.text(max_size=12) | st.sampled_from([*STRANGE, *FILES.values()])
VALUES = (
    TEXT | st.none() | st.integers() | st.lists(TEXT, max_size=2) | st.dictionaries(TEXT, TEXT, max_size=2)
)
PLACES = ["../../x", "/", ".", "sys", "sys/module/nvidia", "a/" * 100, "dev/nvidia0", "proc/version/x"]
NAMES = st.sampled_from([*FILES, *PLACES]) | TEXT.map("/sys/{}".format)
TREES = st.just(FILES) | st.dictionaries(NAMES, TEXT, max_size=6).map(FILES.__or__)
WORDS = dict.fromkeys(["schema", "system", "architecture", "python", "nvidia_smi", "glibc"], VALUES)
DOCUMENTS = st.fixed_dictionaries(
    {"files": TREES | st.dictionaries(NAMES, VALUES, max_size=3)}, optional=WORDS
).map(json.dumps)


def encoded(text):
    return text.encode("utf-8", "surrogatepass")


def packed(files, way):
    inside = {name.replace("\ud800", "?"): encoded(text) for name, text in files.items()}
    return of_zip(inside, way) if isinstance(way, int) else way(of_tar(inside, tarfile.PAX_FORMAT))


WAYS = st.sampled_from([0, 8, 12, 14, gzip.compress, bz2.compress, lzma.compress, bytes])
INPUTS = DOCUMENTS.map(encoded) | st.builds(packed, TREES, WAYS)


def mutated(data, chance):
    """The data cut, with bytes exchanged, or with a part twice or left out."""
    for _ in range(chance.randint(0, 3)):
        at, length = chance.randrange(len(data) + 1), chance.choice([1, 1, 2, 4, 100, 512])
        part, end = data[at : at + length], data[at + length :]
        instead = [part + part, chance.randbytes(length), b"", part.upper()]
        data = data[:at] + chance.choice([part, *(new + end for new in instead)])
    return data


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("PATH", "")  # no uv, which takes a second
    (tmp_path / "temporary").mkdir()
    return tmp_path


@fuzzed(data=INPUTS, seed=st.integers(0, 2**32))
def test_any_file_is_a_machine_or_refused_by_name(folder, data, seed):
    chance = random.Random(seed)
    for changed in [data, *(mutated(data, chance) for _ in range(MANY - 1))]:
        file = folder / f"machine{next(_runs)}"
        file.write_bytes(changed)
        form = chance.choice(["pip", "uv", "dockerfile", "conda"])
        done = CliRunner().invoke(setup.command, ["--machine", str(file), "--format", form, "--json"])
        assert isinstance(done.exception, SystemExit | None), (changed[:2000], done.exception)
        assert done.exit_code in (0, 1)
        answer = json.loads(done.stdout)
        if "error" in answer:
            assert file.name in str(answer["error"])
        file.unlink()
    assert os.listdir(folder / "temporary") == []
