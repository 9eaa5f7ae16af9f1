"""What `accel doctor --issue`, `--bundle` and `--html` leave out of a text, and what stays."""

import pytest

from accel_tools.doctor.identity import Identity
from accel_tools.doctor.records import Finding, Level
from accel_tools.doctor.redact import Redactor
from accel_tools.doctor.topics import TOPICS


@pytest.fixture(scope="module")
def redactor():
    return Redactor(Identity.here({"HOME": "/home/alice", "USER": "alice"}))


@pytest.mark.parametrize(
    "text",
    [
        "cuDNN 9.10.2.21 is loaded, torch was built with 9.1.0.70",
        "nvidia-cudnn-cu12 9.10.2.21",
        "nvidia-cudnn-cu12==9.10.2.21",
        "nvidia-curand-cu12 10.3.9.90, version 11.7.1.2, v10.3.9.90.",
        "libcudnn.so.9.10.2.21: cannot open shared object file",
        "torch 2.13.0+cpu on rocm6.4.1, Linux 6.8.0-1021-aws x86_64",
        "No module named 'torch_npu'",
        "No module named 'habana_frameworks.torch'",
        "module 'torch' has no attribute 'npu': torch.npu.is_available()",
        "pinned host memory of NUMA node 0; one rank on each host",
        "https://pytorch.org/get-started/locally/ has other builds",
        "source set_env.sh",
    ],
)
def test_versions_libraries_and_public_modules_stay(redactor, text):
    assert redactor.text(text) == text


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        # Addresses, also near a library's name.
        (
            "connect to 10.0.0.7:29500, then 192.168.1.2",
            "connect to <ip>:29500, then <ip>",
        ),
        ("torch 10.0.0.7:29500", "torch <ip>:29500"),
        ("NCCL 10.3.0.0/16 is filtered", "NCCL <ip>/16 is filtered"),
        # Hosts that this machine is not.
        ("rank 3 (host gpu-node-17) ended", "rank 3 (host <host>) ended"),
        ("rank 3 (host frodo) ended", "rank 3 (host <host>) ended"),
        (
            "Name or service not known: node17.corp.example",
            "Name or service not known: <name>",
        ),
        ("Name or service not known: node17", "Name or service not known: <host>"),
        ("connect to host [gpu-17]:29500", "connect to host [<host>]:29500"),
        ("server='frodo' node a100-3", "server='<host>' node <host>"),
        # Modules that are not installed, and files.
        ("No module named 'merger_plans'", "No module named '<module>'"),
        (
            "cannot import name 'x' from 'merger_plans.core'",
            "cannot import name 'x' from '<module>'",
        ),
        ("merger_plans.core raised it", "<name> raised it"),
        ("/data/x/merger_with_acme.py", "<path>"),
        ('File "/data/x/merger_with_acme.py", line 3', 'File "<path>", line 3'),
        ("merger_with_acme.py:3: error", "<name>:3: error"),
        ("train/merger_with_acme.py", "<path>"),
        ("/data/x/libhccl.so: undefined symbol", "<path>/libhccl.so: undefined symbol"),
    ],
)
def test_addresses_hosts_private_modules_and_files_go(redactor, text, redacted):
    assert redactor.text(text) == redacted


def test_a_table_of_versions(redactor):
    versions = {
        "nvidia-cudnn-cu12": "9.10.2.21",
        "cuDNN": "9.1.0.70",
        "gateway": "9.1.0.70",
    }
    assert redactor.of(versions) == {**versions, "gateway": "<ip>"}


@pytest.mark.parametrize("topic", [topic.name for topic in TOPICS])
def test_the_codes_of_findings_stay(redactor, topic):
    finding = Finding(Level.ERROR, f"{topic}.no-plugin", "merger_plans.core is missing")
    redacted = redactor.of(finding)
    assert (redacted.code, redacted.what) == (finding.code, "<name> is missing")
