"""A plan in each format: for pip, uv, conda, an image, a project; from the registry and from a checkout."""

from types import SimpleNamespace

import pytest

from accel_core.hardware import vendors
from accel_tools.setup import formats, plan
from accel_tools.setup.hardware import Hardware

EVERY = {
    "pip": "pip install torch --index-url https://download.pytorch.org/whl/cu132 && pip install accel-cuda",
    "uv": "uv pip install torch accel-cuda --torch-backend=cu132",
    "conda": (
        "conda create --yes --name torch python=3.12 pip && conda run --name torch pip install torch "
        "--index-url https://download.pytorch.org/whl/cu132 && conda run --name torch pip install accel-cuda"
    ),
    "dockerfile": (
        "FROM python:3.12-slim\nRUN pip install --no-cache-dir torch --index-url "
        "https://download.pytorch.org/whl/cu132\nRUN pip install --no-cache-dir accel-cuda"
    ),
    "pyproject": (
        '[project]\ndependencies = ["torch", "accel-cuda"]\n\n[tool.uv.sources]\n'
        'torch = { index = "pytorch-cu132" }\n\n[[tool.uv.index]]\nname = "pytorch-cu132"\n'
        'url = "https://download.pytorch.org/whl/cu132"\nexplicit = true'
    ),
    "requirements": (
        "--index-url https://download.pytorch.org/whl/cu132\ntorch\n# then: pip install accel-cuda"
    ),
}


@pytest.mark.parametrize("form", EVERY)
def test_the_formats(form):
    """A registry's accel-core: a checkout's own folder stands in place of a plugin's name otherwise."""
    made = plan.Plan(
        Hardware(), "NVIDIA GPU", "cuda", "3.12", "torch", "cu132", ("accel-cuda",)
    )
    assert formats.FORMATS[form](made) == EVERY[form]


AWS = "https://pip.repos.neuron.amazonaws.com"
WITH_ANOTHER_INDEX = {
    "pip": (
        "pip install torch==2.14.0 --index-url https://download.pytorch.org/whl/cpu && pip install "
        f"'torch-neuronx==2.14.3.0.*' accel-neuron --extra-index-url {AWS}"
    ),
    "uv": (
        "uv pip install torch==2.14.0 'torch-neuronx==2.14.3.0.*' accel-neuron --torch-backend=cpu "
        f"--extra-index-url {AWS}"
    ),
    "conda": f"'torch-neuronx==2.14.3.0.*' accel-neuron --extra-index-url {AWS}",
    "dockerfile": f"'torch-neuronx==2.14.3.0.*' accel-neuron --extra-index-url {AWS}",
    "pyproject": f'[[tool.uv.index]]\nname = "neuron"\nurl = "{AWS}"',
    "requirements": (
        "# then: pip install 'torch-neuronx==2.14.3.0.*' accel-neuron "
        f"--extra-index-url {AWS}"
    ),
}


def of_aws(torch_backend="cpu"):
    packages = ("torch-neuronx==2.14.3.0.*", "accel-neuron")
    return plan.Plan(
        Hardware(), "AWS Trainium", "neuron", "3.12", "torch==2.14.0", torch_backend,
        packages, AWS,
    )  # fmt: skip


@pytest.mark.parametrize("form", WITH_ANOTHER_INDEX)
def test_the_vendors_own_index_is_named(form):
    """PyPI has a placeholder of torch-neuronx alone."""
    assert formats.FORMATS[form](of_aws()).endswith(WITH_ANOTHER_INDEX[form])


def test_the_vendors_own_index_without_one_of_torchs():
    assert formats.FORMATS["pip"](of_aws("")).endswith(f"--extra-index-url {AWS}")
    assert formats.FORMATS["requirements"](of_aws("")).startswith(
        f"--extra-index-url {AWS}\ntorch==2.14.0\n"
    )


#: A checkout that accel-core was installed from, and an address of its repository.
CHECKOUT = "/src/accel"
REPOSITORY = "git+https://example.org/accel@0a1b"
IN_A_CHECKOUT = {
    "pip": "&& pip install /src/accel /src/accel/plugins/accel_cuda",
    "uv": "uv pip install torch /src/accel /src/accel/plugins/accel_cuda --torch-backend=cu132",
    "conda": "&& conda run --name torch pip install /src/accel /src/accel/plugins/accel_cuda",
    "dockerfile": (
        "# docker build --build-context accel=/src/accel .\n"
        "RUN --mount=from=accel,target=/accel,rw pip install --no-cache-dir /accel /accel/plugins/accel_cuda"
    ),
    "pyproject": '"accel-core @ file:///src/accel", "accel-cuda @ file:///src/accel/plugins/accel_cuda"]',
    "requirements": "# then: pip install /src/accel /src/accel/plugins/accel_cuda",
}


def placed(package):
    """As `vendors.pip_argument` gives it for a core that was installed from the checkout."""
    return f"{CHECKOUT}/{vendors.FOLDERS[package]}".rstrip("/")


@pytest.mark.parametrize("form", IN_A_CHECKOUT)
def test_a_checkout_is_named_by_its_folders(monkeypatch, form):
    monkeypatch.setattr(
        formats,
        "vendors",
        SimpleNamespace(FOLDERS=vendors.FOLDERS, pip_argument=placed),
    )
    made = plan.Plan(
        Hardware(),
        "NVIDIA GPU",
        "cuda",
        "3.12",
        "torch",
        "cu132",
        ("accel-core", "accel-cuda"),
    )
    assert IN_A_CHECKOUT[form] in formats.format_plan(made, form)


def test_an_image_from_a_repository_has_git(monkeypatch):
    def at_repository(package):
        return f"{package} @ {REPOSITORY}"

    namespace = SimpleNamespace(FOLDERS=vendors.FOLDERS, pip_argument=at_repository)
    monkeypatch.setattr(formats, "vendors", namespace)
    made = plan.Plan(Hardware(), "CPU", "cpu", "3.12", "torch", "cpu", ("accel-core",))
    lines = formats.format_plan(made, "dockerfile").splitlines()
    assert lines[0] == "FROM python:3.12"
    assert lines[-1] == f"RUN pip install --no-cache-dir 'accel-core @ {REPOSITORY}'"


FORMATTED = [
    ("cuda", {"driver": "570.86"}), ("cuda", {"toolkit": "12.8"}), ("npu", {"toolkit": "8.5.0"}),
    ("rocm", {"toolkit": "6.4"}), ("xpu", {}),
]  # fmt: skip


@pytest.mark.parametrize("form", formats.FORMATS)
@pytest.mark.parametrize(("name", "given"), FORMATTED)
def test_what_is_given_comes_in_each_format(planned_for, name, given, form):
    found = planned_for({}, name, **given)
    text = formats.format_plan(
        plan.add_accel_packages(found, is_new_environment=True), form
    )
    index = (
        f"--torch-backend={found.torch_backend}"
        if form == "uv"
        else f"/whl/{found.torch_backend}"
    )
    assert index in text
    for package in (found.torch, "accel-core", *found.packages):
        assert package in text
    needs_cann = "# The image needs CANN 8.5.0: https://www.hiascend.com/cann" in text
    assert needs_cann == (name == "npu" and form == "dockerfile")
