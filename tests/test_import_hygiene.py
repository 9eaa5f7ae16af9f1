"""Importing accel_core costs nothing and changes nothing; its public names are complete."""

import ast
import importlib
import re
import rlcompleter
import subprocess
import sys
from pathlib import Path

import pluggy
import pytest

import accel_core
from accel_core import errors

SOURCE = Path(accel_core.__file__)
TREE = SOURCE.parents[2]

#: What no import of the root may bring: each costs more than all of ours.
HEAVY = [
    "torch", "pluggy", "importlib.metadata", "inspect", "typing", "dataclasses", "re", "click", "rich",
    "psutil", "packaging", "subprocess", "threading", "concurrent", "tempfile", "json", "pathlib", "email",
]  # fmt: skip


OTHERS = [
    f"accel_core.{name}"
    for name in ("backend", "errors", "hardware.bus", "hardware.vendors", "settings")
]


def bare(code):
    """What `code` prints in an interpreter without site packages, so that nobody else's imports are seen."""
    code = f"import sys; before = set(sys.modules); sys.path.insert(0, {str(SOURCE.parents[1])!r}); {code}"
    command = [sys.executable, "-I", "-S", "-c", code]
    return set(
        subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_the_root_imports_nothing_else():
    """An import that starts a driver breaks later forks, and takes seconds."""
    imported = bare("import accel_core; print(*(set(sys.modules) - before))")
    own = {
        name
        for name in imported
        if name.partition(".")[0] not in ("importlib", "warnings")
    }
    assert own <= {"accel_core", "__future__"}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import accel_core", HEAVY),
        (
            "from accel_core import Backend, hookimpl",
            ["torch", "importlib.metadata", "psutil", "rich", "click"],
        ),
        (
            "import accel_core; accel_core.discover()",
            ["torch", "psutil", "packaging", "tomllib", "tomli"],
        ),
        (
            "import accel_core; accel_core.get_accelerator",
            ["torch", "rich", "click", "packaging"],
        ),
        ("from accel_core import *", ["torch", "rich", "click"]),
        ("import accel_core.interface.cpu", ["torch", "psutil", "pluggy"]),
        ("import accel_core.interface.torch_device", ["torch", "psutil", "pluggy"]),
        (
            "import accel_testing",
            ["torch", "pytest", "_pytest", "psutil", "rich", "click"],
        ),
        # The CPU's accelerator, and the worker that starts each rank, need nothing else of the machine.
        (
            "import accel_core.hardware",
            ["torch", "psutil", "dataclasses", "typing", *OTHERS],
        ),
        (
            "from accel_core.hardware.vendors import known_hardware; known_hardware()",
            ["torch", "psutil", "pluggy"],
        ),
    ],
)
def test_what_each_step_does_not_import(world, statement, absent):
    """A command that needs no torch must not wait for it, nor fail with a broken vendor package."""
    world.backend("npu")
    told = "print(json.dumps(sorted(after - before)))"
    code = (
        f"import sys\nbefore = set(sys.modules)\n{statement}\nafter = "
        f"set(sys.modules)\nimport json\n{told}"
    )
    brought = world.child(code, bare=False).answer
    top = {
        name for name in brought if name in absent or name.partition(".")[0] in absent
    }
    assert top == set()


def test_no_plugin_loads_what_only_its_hooks_need():
    """Every first choice imports the plugins, and reads their declarations alone."""
    sources = sorted((TREE / "plugins").glob("accel_*/src"))
    tops = [source.parent.name for source in sources]
    path = [*map(str, sources), str(Path(pluggy.__file__).parents[1])]
    loaded = bare(
        f"sys.path += {path}; import {', '.join(tops)}, accel_xpu.external; print(*sys.modules)"
    )
    assert {*tops, "accel_core.backend"} <= loaded
    unused = {
        "accel_core.hardware.visible_devices",
        "accel_core.operators",
        *(f"{top}.accelerator" for top in tops),
    }
    assert loaded & unused == set()


def test_a_choice_that_succeeds_needs_no_words(torch_world):
    """Reasons are data; what makes sentences of them is imported when somebody reads them."""
    torch_world.backend("npu")
    words = "[name for name in sys.modules if name.startswith('accel_core.explain')]"
    code = (
        "import accel_core, json, sys\n"
        "name = accel_core.get_accelerator().name\n"
        f"print(json.dumps([name, {words}]))"
    )
    for pin in ("", "npu"):
        answer = torch_world.child(
            f"import os; os.environ['DS_ACCELERATOR'] = {pin!r}\n{code}"
        ).answer
        assert answer == ["npu", []]


def test_importing_writes_no_variable_and_starts_nothing(world):
    """A program sets a vendor's variables after its imports."""
    code = (
        "import os, sys, json, threading\n"
        "environ, threads = dict(os.environ), threading.active_count()\n"
        "import accel_core, accel_core.current\n"
        "print(json.dumps([environ == dict(os.environ), threads == threading.active_count()]))"
    )
    assert world.child(code, bare=False).answer == [True, True]


@pytest.mark.parametrize("first", ["accel_core", "torch"])
def test_either_import_order_works(torch_world, first):
    """Some programs import torch first, by another package such as triton."""
    second = "torch" if first == "accel_core" else "accel_core"
    code = f"import {first}\nimport {second}\nimport json, accel_core\n"
    code += "print(json.dumps(accel_core.get_accelerator().name))"
    assert torch_world.child(code, bare=True).answer == "cpu"


@pytest.mark.parametrize("name", accel_core.__all__)
def test_every_public_name_resolves(name):
    value = getattr(accel_core, name)
    if name != "__version__":
        module = importlib.import_module(f"accel_core.{accel_core._MODULES[name]}")
        assert getattr(module, name) is value


def test_import_linter_knows_every_plugin():
    """It takes no patterns, as the other tools do."""
    project = (TREE / "pyproject.toml").read_text(encoding="utf-8")
    plugins = {path.parent.name for path in (TREE / "plugins").glob("*/pyproject.toml")}
    (contract,) = re.findall(
        r'id = "plugins"\n.*?source_modules = \[(.*?)\]', project, re.DOTALL
    )
    (roots,) = re.findall(r"root_packages = \[(.*?)\]", project, re.DOTALL)
    assert set(re.findall(r'"(\w+)"', contract)) == plugins
    beside = {path.name for path in (TREE / "packages").glob("*/src/*")}
    assert set(re.findall(r'"(\w+)"', roots)) == {"accel_core", *beside, *plugins}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(
        AttributeError, match="module 'accel_core' has no attribute 'missing'"
    ):
        accel_core.missing  # noqa: B018
    with pytest.raises(ImportError):
        from accel_core import missing  # noqa: F401


def test_dir_gives_the_public_names_and_nothing_else():
    assert dir(accel_core) == sorted(accel_core.__all__)


def test_completion_offers_no_submodule():
    importlib.import_module(
        "accel_core.probe"
    )  # a submodule that was imported is an attribute
    assert "probe" in vars(accel_core)
    completer = rlcompleter.Completer({"accel_core": accel_core})
    assert completer.attr_matches("accel_core.prob") == []


#: The built-in classes that each public error also is: code written against these keeps working.
BUILTIN_BASES = {
    "AccelError": (Exception,),
    "BackendConflictError": (RuntimeError,),
    "BackendNotFoundError": (LookupError, ValueError),
    "BackendUnavailableError": (RuntimeError, ValueError),
    "ChildError": (AssertionError,),
    "CommunicationError": (RuntimeError,),
    "DeclinedError": (RuntimeError, ValueError),
    "HostMemoryError": (RuntimeError,),
    "IntegrationError": (RuntimeError,),
    "IntegrationMissingError": (ImportError,),
    "InvalidAcceleratorError": (TypeError,),
    "InvalidArgumentError": (TypeError,),
    "InvalidBackendError": (ValueError,),
    "InvalidDeviceError": (ValueError,),
    "LaunchError": (ValueError,),
    "OpInputError": (ValueError,),
    "RankLostError": (RuntimeError,),
    "RankMismatchError": (RuntimeError,),
    "RecursiveChoiceError": (RuntimeError,),
    "SettingError": (ValueError,),
    "UnsupportedError": (NotImplementedError,),
}
WARNINGS = ("AcceleratorFallbackWarning", "SettingWarning")
EXCEPTIONS = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type)
    and issubclass(value, Exception)
    and not name.startswith("_")
}


def test_every_public_error_has_a_row_of_built_in_bases():
    """Any that accel_core.errors defines: none is left out of the public names or of the table."""
    assert EXCEPTIONS.keys() == BUILTIN_BASES.keys() | {*WARNINGS}
    assert EXCEPTIONS.keys() <= {*accel_core.__all__}


@pytest.mark.parametrize(("name", "bases"), BUILTIN_BASES.items(), ids=BUILTIN_BASES)
def test_an_error_is_an_accel_error_and_the_built_in_that_a_caller_expects(name, bases):
    error = EXCEPTIONS[name]
    assert issubclass(error, errors.AccelError)
    for base in bases:
        assert issubclass(error, base), f"{name} is not a {base.__name__} any more"


@pytest.mark.parametrize("name", WARNINGS)
def test_a_warning_is_a_user_warning(name):
    assert issubclass(EXCEPTIONS[name], UserWarning)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_error_says_in_its_docstring_when_it_is_raised(name):
    assert EXCEPTIONS[name].__doc__


def layers():
    """The layers of accel_core from the top down, as import-linter has them."""
    text = (TREE / "pyproject.toml").read_text(encoding="utf-8")
    block = text[text.index('id = "layers"') :]
    block = block[block.index("\nlayers = [") :]
    block = block[: block.index("\n]")]
    return [set(re.findall(r"\w+", line)) for line in re.findall(r'"([^"]+)"', block)]


def test_no_import_is_hidden_in_a_string():
    """A module that is named in a string is imported by it, later, and import-linter does not see it."""
    place = {name: index for index, names in enumerate(layers()) for name in names}
    assert place["__main__"] == 0
    assert place["text"] == max(place.values())
    upward = []
    for path in SOURCE.parent.rglob("*.py"):
        top = path.relative_to(SOURCE.parent).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = re.fullmatch(r"accel_core\.(\w+)[\w.]*(:\w+)?", node.value)
                if named and place.get(named[1], -1) < place.get(top, -1):
                    upward.append(f"{path.name}:{node.lineno}: {node.value}")
    assert upward == []


#: Frameworks that the user has, or an extra asks for; each module says so where one is missing.
BROUGHT_BY_THE_USER = {
    "torch", "deepspeed", "lightning", "pytorch_lightning", "lightning_utilities", "accelerate",
    "transformers", "numpy", "accel_train",
}  # fmt: skip


@pytest.mark.parametrize(
    "project",
    [".", *(f"packages/accel_{name}" for name in ("train", "tools", "testing"))],
)
def test_every_package_that_is_imported_is_declared(project):
    """filelock came with torch, by chance."""
    text = TREE.joinpath(project, "pyproject.toml").read_text(encoding="utf-8")
    blocks = re.findall(
        r"(?ms)^dependencies = \[(.*?)\]$|^\[project\.optional-dependencies\]$(.*?)^\[",
        text,
    )
    names = re.findall(r'"([\w-]+)(?=[=<>;\[])', "".join(map("".join, blocks)))
    declared = {name.replace("-", "_") for name in names}
    # tomllib is the standard library's from Python 3.11 on, as the code asks; before, tomli is declared.
    own = {path.name for path in TREE.joinpath(project, "src").iterdir()}
    ours = declared | own | {"tomllib"} | BROUGHT_BY_THE_USER
    ours |= (
        {"elftools"} if "pyelftools" in declared else set()
    )  # the package of that distribution
    strange = {}
    for file in TREE.joinpath(project, "src").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for_checkers = {  # they have stubs, and nothing is imported
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in node.body
        }
        for node in set(ast.walk(tree)) - for_checkers:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += (
                [node.module]
                if isinstance(node, ast.ImportFrom) and node.module
                else []
            )
            for top in (
                {name.partition(".")[0] for name in names}
                - sys.stdlib_module_names
                - ours
            ):
                strange.setdefault(top, file.name)
    assert strange == {}


def naming(pattern, folders):
    """Give the modules under `folders` in which a line matches, once for each such line."""
    paths = [
        path
        for folder in folders
        for path in sorted((SOURCE.parent / folder).rglob("*.py"))
    ]
    lines = [
        (path, line)
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len(lines) > 1000
    return [
        path.relative_to(SOURCE.parent).as_posix()
        for path, line in lines
        if re.search(pattern, line)
    ]


def test_no_framework_is_named_where_devices_and_operators_are():
    """But for the source of the interface's names; what is for one framework is in its integration."""
    pattern = r"(?i)deepspeed|lightning|transformers|\baccelerate\b"
    assert set(naming(pattern, ["interface"])) == {"interface/__init__.py"}


def test_the_core_knows_of_no_simulated_devices():
    """Their variable and their command lie beside the core, which knows how their package is installed."""
    assert set(naming(r"(?i)accel_simulated|accel.simulat|ACCEL_SIMULATE", ["."])) == {
        "hardware/vendors.py"
    }
