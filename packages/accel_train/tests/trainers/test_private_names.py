"""What we read of other projects although they do not promise it is in their sources.

By day in the installed releases; by night in the newest that an index has.
"""

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from accel_train import private_names

#: Folders of the sources that are read, by distribution.
READ = ("accelerate", "lightning", "transformers")


def installed_folder(name):
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    return Path(found.submodule_search_locations[0])


@pytest.fixture(scope="session")
def newest(tmp_path_factory):
    """A folder with the newest releases, without what they depend on."""
    pytest.importorskip("uv")
    folder = tmp_path_factory.mktemp("newest")
    uv = [sys.executable, "-m", "uv"]
    command = [*uv, "pip", "install", "--no-deps", "--target", folder]
    done = subprocess.run([*command, *READ], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


NEWEST = pytest.param(
    "newest", marks=pytest.mark.nightly(reason="it installs the newest releases")
)


@pytest.fixture(params=["installed", NEWEST])
def tree(request):
    """`tree("accelerate", "state.py")`: a module of theirs, parsed and not imported."""
    folder = request.getfixturevalue("newest") if request.param == "newest" else None

    def parse(distribution, file):
        home = folder / distribution if folder else installed_folder(distribution)
        return ast.parse((home / file).read_text(encoding="utf-8"))

    return parse


def the_class(tree, name):
    [found] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    return found


def the_function(tree, name):
    [found] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return found


def named_in(tree):
    """Methods, class attributes and `self.…` of a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


@pytest.mark.parametrize(
    "of", private_names.NAMES, ids=lambda of: f"{of.distribution}-{of.class_name}"
)
def test_a_class_has_the_private_names_that_we_read(tree, of):
    theirs = set(named_in(the_class(tree(of.distribution, of.file), of.class_name)))
    assert set(of.names) - theirs == set()


def test_lightnings_connectors_are_given_what_we_read_of_their_frames(tree):
    read = {"self", "accelerator", "strategy", "precision", "num_nodes"}
    for module in private_names.LIGHTNING_CONNECTORS:
        if module.startswith("lightning."):
            file = f"{module.removeprefix('lightning.').replace('.', '/')}.py"
            made = the_function(tree("lightning", file), "__init__")
            given = {each.arg for each in (*made.args.args, *made.args.kwonlyargs)}
            assert read - given == set(), module


def test_accelerates_state_is_given_whether_the_cpu_is_meant(tree):
    state = the_class(tree("accelerate", "state.py"), "PartialState")
    made = the_function(state, "__init__")
    assert "cpu" in [each.arg for each in made.args.args]


def test_the_ladder_is_transformers(tree):
    setup = the_function(tree("transformers", "training_args.py"), "_setup_devices")
    calls = [
        node
        for node in ast.walk(setup)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.device"
    ]
    texts = [
        text
        for call in calls
        for text in ast.walk(call)
        if isinstance(getattr(text, "value", 0), str)
    ]
    kinds = [
        text.value.partition(":")[0]
        for text in sorted(texts, key=lambda text: text.lineno)
    ]
    ladder = kinds[kinds.index("mps") :]
    others = ("cpu", "ACCELERATE_TORCH_DEVICE")
    assert (
        tuple(kind for kind in ladder if kind not in others)
        == private_names.TRANSFORMERS_DEVICE_ORDER
    )


def test_ranks_are_accelerates(tree):
    prepare = the_function(tree("accelerate", "state.py"), "_prepare_backend")
    found = [
        (node.lineno, node.attr.removeprefix("MULTI_").lower().replace("gpu", "cuda"))
        for node in ast.walk(prepare)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("MULTI_")
        and node.attr != "MULTI_CPU"
    ]
    _sagemaker, *kinds = [kind for _, kind in sorted(found)]
    assert tuple(kinds) == private_names.ACCELERATE_RANK_TYPES


def test_float16_is_accelerates(tree):
    [found] = [
        ast.literal_eval(node.value)
        for node in ast.walk(tree("accelerate", "accelerator.py"))
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "supported_device"
    ]
    assert found == private_names.ACCELERATE_LOSS_SCALING_TYPES


def test_the_installed_releases_are_those_that_are_said(pytestconfig):
    """The constraints of this repository, which the sessions install."""
    pins = dict(
        line.split("==")
        for line in (pytestconfig.rootpath / "constraints.txt").read_text().split()
        if "==" in line
    )
    for distribution in READ:
        assert private_names.VERIFIED_RELEASES[distribution] == pins[distribution]
