"""What holds for every first-party plugin: order, hints, and what it ships.

That its hooks fit and its module is inert is level 0 of the kit, which accel-simulated's tests run.
"""

import ast
import importlib
import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from accel_contracts.plugins import PLUGINS, ROOT, declared, everything, import_plugin
from accel_contracts.static import uses, violations
from accel_tests import surfaces
from accel_tests.asking import verdict_on
from accel_tests.tools import load

import accel_core
from accel_core import Backend, Provenance, hint_for
from accel_core.build import Group, explain_error
from accel_core.hints import COMMON
from accel_core.interface.torch_device import FORWARDED
from accel_testing.commands.new import TORCH_TYPES
from accel_testing.conformance import catalogue

#: DeepSpeed's order of detection, and after it what DeepSpeed does not know.
PRIORITIES = {
    "xpu.external": {900}, "xpu": {800, 790}, "npu": {700}, "sdaa": {600}, "mps": {500}, "hpu": {400},
    "tpu": {350}, "mlu": {300}, "musa": {290}, "supa": {250}, "klxpu": {225}, "cuda": {200, 190},
    "rbln": {175},
}  # fmt: skip


def test_priorities_are_deepspeeds_and_torch_is_known(plugin):
    """How a backend with such fields is judged is told in tests/detection."""
    for backend in declared(plugin):
        assert backend.in_torch.private_use1 is (backend.device_type not in TORCH_TYPES)
        assert any(each.startswith("torch>=2.") for each in backend.requires)
        assert backend.priority in PRIORITIES[backend.name], backend.name
        assert backend.hardware.name, "every device has a name for people"


def test_one_takes_anothers_place_before_it():
    backends = [backend for plugin in PLUGINS for backend in declared(plugin)]
    by_name = {backend.name: backend for backend in backends}
    for backend in backends:
        assert (
            not backend.in_torch.impersonates
            or by_name[backend.in_torch.impersonates].priority < backend.priority
        )


def test_what_is_behind_anothers_namespace_is_known_to_that_other():
    """Nothing else tells them apart."""
    backends = [backend for plugin in PLUGINS for backend in declared(plugin)]
    behind = [b for b in backends if b.in_torch.impersonates == b.device_type]
    assert [b.name for b in behind] == ["klxpu"]
    for backend in behind:
        for other in backends:
            if other.device_type == backend.device_type and other is not backend:
                assert set(backend.vendor_imports) <= set(other.in_torch.taken_over_by)


def test_what_computes_otherwise_is_a_check_of_the_kit_and_on_the_page():
    """The kit itself leaves no check out for the name of a device: users would not hear of it."""
    checks = {check.name for check in catalogue.checks()}
    for plugin in PLUGINS:
        for backend in declared(plugin):
            page = (
                ROOT / f"docs/backends/{backend.name.partition('.')[0]}.md"
            ).read_text("utf-8")
            told = re.findall(r"^- (.+) \(check `([\w.]+)`\)\.$", page, re.MULTILINE)
            assert told == [
                (words, check) for check, words in backend.computes_otherwise
            ], backend.name
            assert {check for _, check in told} <= checks
        for file in plugin.glob(
            "tests/real/expected.toml"
        ):  # what is wrong in silence is no vendor's error
            rows = re.findall(
                r'^"(?:compute|ranks)[\w.]+" = "(.*)"$',
                file.read_text("utf-8"),
                re.MULTILINE,
            )
            raised = "XLA's CPU library|stand-in|not implemented|usual order|compiler"
            assert [words for words in rows if not re.search(raised, words)] == []
    sources = [
        file.read_text("utf-8")
        for file in Path(catalogue.__file__).parent.rglob("test_*.py")
    ]
    assert not re.findall(
        r"if [^\n]*(?:device_type|\.name|device_name\(\)) [!=]= .*\n *not_claimed",
        "".join(sources),
    )


#: Errors of no vendor's.
NOBODYS = [
    "", "list index out of range", "expected scalar type Half but found Float", "exit 1277",
    "libssl.so.1.1: cannot open", "libc10.so: cannot open shared object file",
]  # fmt: skip
CUDAS = "libcudart.so.12: cannot open"
#: Texts of errors that users met, and words of the next step.
SEEN = [
    (plugin, message, words)
    for plugin in PLUGINS
    for message, words in json.loads(
        (plugin / "tests/seen.json").read_text(encoding="utf-8")
    )
]


def explained(plugin, message, *backends):
    """The next steps that a user gets beside this plugin, for its own backends or for others."""
    error = ImportError("wrapped")
    error.__cause__ = RuntimeError(message)
    found = set()
    for backend in backends or declared(plugin):
        source = Provenance(
            "accel-acme", "1", backend.name, import_plugin(plugin).__name__
        )
        verdict = verdict_on(replace(backend, provenance=source))
        found.add(explain_error(verdict, error, Group((verdict,))).hint)
    return found


def test_every_plugin_has_met_errors():
    assert {plugin for plugin, *_ in SEEN} == set(PLUGINS)


@pytest.mark.parametrize(
    ("seen", "message", "words"),
    SEEN,
    ids=[f"{plugin.name} {message[:40]}" for plugin, message, _ in SEEN],
)
def test_the_next_step_after_an_error_that_users_met(seen, message, words):
    assert all(words in step for step in explained(seen, message))
    # It is asked about others' errors too, and theirs have undefined symbols as well.
    acme = Backend(
        name="acme", priority=1, device_type="acme", vendor_import="torch_acme"
    )
    assert explained(seen, message, acme) == {
        hint_for(RuntimeError(message), COMMON) or ""
    }


def test_it_explains_only_what_it_knows(plugin):
    assert {step for message in NOBODYS for step in explained(plugin, message)} == {""}


def test_who_has_a_library_of_cudas_name():
    known = {plugin.name for plugin in PLUGINS if explained(plugin, CUDAS) != {""}}
    assert known == {"accel_cuda", "accel_klxpu", "accel_supa"}


@pytest.mark.parametrize(
    ("name", "kept", "forwarded"),
    [
        ("cuda", "CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES",
         "NCCL_DEBUG RCCL_MSCCL FI_PROVIDER UCX_TLS"),
        ("hpu", "HABANA_VISIBLE_MODULES HABANA_VISIBLE_DEVICES HLS_MODULE_ID",
         "PT_HPU_LAZY_MODE HCCL_OVER_OFI HABANA_LOGS HABANA_PROFILE"),
        ("mlu", "MLU_VISIBLE_DEVICES CN_VISIBLE_DEVICES", "NEUWARE_HOME CNCL_MEM"),
        ("musa", "MUSA_VISIBLE_DEVICES", "MUSA_HOME MCCL_X TORCH_MCCL_X PYTORCH_MUSA_ALLOC_CONF"),
        ("npu", "", "ASCEND_HOME_PATH HCCL_IF_IP"),
        ("rbln", "RBLN_LOCAL_IP RBLN_RDMA_IP RBLN_DEVICES",
         "RBLN_ROOT_IP RBLN_NPUS_PER_DEVICE TORCH_RBLN_LOG_LEVEL"),
        ("xpu", "ZE_AFFINITY_MASK ONEAPI_DEVICE_SELECTOR",
         "CCL_WORKER_COUNT FI_PROVIDER ZE_FLAT_DEVICE_HIERARCHY SYCL_CACHE_PERSISTENT"),
        ("supa", "", "BCCL_X BIREN_X SUPA_X BRTB_X"),
        ("sdaa", "", "TCCL_X SDAA_X TECO_X TORCH_SDAA_X"),
        ("klxpu", "CUDA_VISIBLE_DEVICES", "BKCL_X XPU_X XMLIR_X"),
    ],
)  # fmt: skip
def test_which_variables_go_to_other_hosts(name, kept, forwarded):
    """What selects devices, and a host's own addresses, are each host's affair."""
    for backend in declared(ROOT / f"plugins/accel_{name}"):
        for variable in kept.split():
            assert not variable.startswith(backend.environment.forward)
        for variable in forwarded.split():
            assert variable.startswith(backend.environment.forward)
        assert not {"LD_LIBRARY", "PATH"} & {
            *backend.environment.forward
        }  # which go for every vendor


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize(
    "name", ["MLUAccelerator", "MUSAAccelerator", "SUPAAccelerator", "XPUAccelerator"]
)
def test_triton_where_it_is_installed(name, installed, monkeypatch):
    module = importlib.import_module(
        f"accel_{name.removesuffix('Accelerator').lower()}.accelerator"
    )
    monkeypatch.setattr(module, "is_installed", lambda package: installed)
    for available in (True, False):
        device = SimpleNamespace(is_available=Mock(return_value=available))
        asked = getattr(module, name).is_triton_supported(device)
        assert asked is (installed and available)


LIBRARIES = [
    ("MLUAccelerator", "cncl", [1, 20, 1]),
    ("MUSAAccelerator", "mccl", (2, 11, 4, "rc1")),
    ("SUPAAccelerator", "bccl", (1, 3, 0, "rc2")),
]


@pytest.mark.parametrize(("name", "library", "version"), LIBRARIES)
def test_the_version_of_the_collective_library_where_the_build_has_it(
    name, library, version
):
    module = importlib.import_module(
        f"accel_{name.removesuffix('Accelerator').lower()}.accelerator"
    )
    for asked, told in (({"version": lambda: version}, tuple(version[:3])), ({}, None)):
        built = SimpleNamespace(
            device_module=SimpleNamespace(**{library: SimpleNamespace(**asked)})
        )
        assert getattr(module, name).communication_backend_version(built) == told


def test_it_imports_only_the_public_root_of_the_core(plugin):
    for path in (plugin / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("accel_core."), path
            if isinstance(node, ast.Import):
                assert not any(
                    alias.name.startswith("accel_core.") for alias in node.names
                ), path


def test_it_ships_what_a_distribution_needs(plugin):
    assert (plugin / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (plugin / "src" / plugin.name / "py.typed").exists()
    project = (plugin / "pyproject.toml").read_text()
    assert f'name = "{plugin.name.replace("_", "-")}"' in project
    assert (
        f'= "{plugin.name}"'
        in project.partition('[project.entry-points."accel.backends"]')[2]
    )
    assert (plugin / "README.md").read_text().count("pip install ") >= 2


# ---------------------------------------------------------------------------- surfaces
# The surface files: complete, and what they say of well-known names.


_TOOL = load("compact_surfaces", "lab")
FULL = Path(__file__).parents[3] / "shared" / "vendor_surfaces"


@pytest.mark.parametrize("name", [*surfaces.files()])
def test_it_says_where_it_comes_from(name):
    source = json.loads((surfaces.FOLDER / f"{name}.json").read_text())["source"]
    assert source["vendor"] == name
    assert source["package"]
    assert source["evidence"].startswith("usage" if name == "sdaa" else "source")


@pytest.mark.skipif(
    not FULL.is_dir(), reason="the full surface files are not beside this checkout"
)
def test_they_are_what_the_full_ones_compact_to():
    for path in FULL.glob("*.json"):
        if path.stem not in _TOOL.LEFT_OUT:
            here = json.loads((surfaces.FOLDER / path.name).read_text())
            assert here == _TOOL.compact(json.loads(path.read_text())), path.name


def test_members_aliases_and_conditions():
    mlu = surfaces.load("mlu").modules["torch.mlu"]
    assert (
        mlu["Device"].members.keys()
        == mlu["device"].members.keys()
        == {"__enter__", "__exit__"}
    )
    assert mlu["default_generators"].kind == "attribute"
    hpu = surfaces.load("hpu").modules["torch.hpu"]
    assert hpu["HPUGraph"].condition == "is_lazy()"
    external = surfaces.load("xpu_external").modules[
        "intel_extension_for_deepspeed.xpu_accelerator"
    ]
    assert "range_push" in external["XPU_Accelerator"].members


def test_names_that_were_only_asked_for_are_not_offered():
    assert "nvtx" not in surfaces.load("sdaa").modules["torch.sdaa"]


def test_a_backend_finds_its_surface():
    def backend(device, *vendor):
        return accel_core.Backend(
            name=device, priority=1, device_type=device, vendor_import=vendor
        )

    assert surfaces.for_backend(backend("mlu", "torch_mlu")) is surfaces.load("mlu")
    assert surfaces.for_backend(backend("acme", "torch_acme")) is None
    native = surfaces.for_backend(backend("xpu", "torch"))
    ipex = surfaces.for_backend(backend("xpu", "intel_extension_for_pytorch"))
    more = ipex.modules["torch.xpu"].keys() - native.modules["torch.xpu"].keys()
    assert more
    assert native.modules["torch.xpu"].keys() <= ipex.modules["torch.xpu"].keys()


def test_torchs_own_surfaces_are_those_of_this_torch():
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the surfaces are those of torch 2.13")
    for device in ("cuda", "xpu", "mps"):
        module = getattr(torch, device)
        for name, entry in surfaces.load(device).modules[f"torch.{device}"].items():
            if not entry.condition and entry.kind != "module":
                assert hasattr(module, name), entry.path
            own = getattr(module, name, len)
            # A build with CUDA has one that is built in, without a signature.
            if (
                entry.kind == "function"
                and entry.signature
                and not inspect.isbuiltin(own)
            ):
                assert list(inspect.signature(own).parameters) == list(
                    entry.signature.parameters
                ), entry.path


# ---------------------------------------------------------------------------- static
# Every vendor name in a plugin's source is in its vendor's surface, and every call fits.


INTERFACE = ROOT / "src" / "accel_core" / "interface"


def parsed(plugin):
    return {
        path.name: ast.parse(path.read_text())
        for path in (plugin / "src").rglob("*.py")
    }


def test_names_and_calls_are_the_vendors(plugin):
    wrong = {
        name: violations(tree, *everything(plugin))
        for name, tree in parsed(plugin).items()
    }
    assert {name: said for name, said in wrong.items() if said} == {}


def test_the_vendor_import_is_the_surfaces_package(plugin):
    for backend in declared(plugin):
        found = surfaces.for_backend(backend)
        tops = {module.partition(".")[0] for module in backend.vendor_imports}
        # A package that takes a namespace over below Python has no names there: those are the namespace's.
        behind = {
            name
            for every in PLUGINS
            for other in declared(every)
            if other.device_type == backend.device_type == backend.in_torch.impersonates
            for name in other.in_torch.taken_over_by
        }
        assert tops <= {"torch", *found.packages, *behind}


def test_the_ranges_that_a_plugin_names_are_its_vendors(plugin):
    for backend in declared(plugin):
        module, _, name = (
            backend.accelerator or "accel_core:TorchAccelerator"
        ).partition(":")
        ranges = getattr(importlib.import_module(module), name)._vendor_ranges
        if ranges:
            names = surfaces.for_backend(backend).modules[
                f"torch.{backend.device_type}.{ranges}"
            ]
            assert {"range_push", "range_pop"} <= names.keys()


def test_misspelling_any_one_name_and_one_argument_too_many_fail():
    """Mutation: every name that a plugin takes for granted, and every call of one, one at a time."""
    count = 0
    for plugin in PLUGINS:
        where = everything(plugin)
        for tree in parsed(plugin).values():
            assert violations(tree, *where) == []
            for use in [use for use in uses(tree, *where) if not use.tested]:
                if isinstance(use.node, ast.Attribute):
                    use.node.attr += "_misspelt"
                    assert violations(tree, *where), use.path
                    use.node.attr = use.node.attr.removesuffix("_misspelt")
                    count += 1
                if use.call:
                    use.call.keywords.append(ast.keyword("surplus", ast.Constant(0)))
                    assert violations(tree, *where), use.path
                    use.call.keywords.pop()
    assert count >= 25


@pytest.mark.parametrize(
    ("body", "is_wrong"),
    [
        ("self.device_module.empty_cashe()", True),
        ("with suppress(Exception): self.device_module.empty_cashe()", True),
        ("self.device_module.device_count(1, 2, nothing=3)", True),
        ("self.device_module.device_count(*many, **named)", False),
        ("module = self.device_module; module.empty_cashe()", True),
        ("torch.mlu.empty_cashe()", True),
        ("getattr(self.device_module, 'empty_casket')", True),
        ("getattr(self.device_module, 'empty_casket', bool)()", False),
        ("getattr(self.device_module, name)()", True),
        ("hasattr(self.device_module, 'odd') and self.device_module.odd()", False),
        ("from torch_mlu import nothing", True),
        ("import torch_mlu.nothing", True),
        ("importlib.import_module('torch_mlu.nothing')", True),
        ("with suppress(ImportError): import_module('torch_mlu.nothing')", False),
        ("try: import torch_mlu.nothing\n  except ModuleNotFoundError: pass", False),
    ],
)
def test_what_is_wrong_is_found(body, is_wrong):
    tree = ast.parse(f"import torch\ndef f(self):\n  {body}")
    assert bool(violations(tree, surfaces.load("mlu"), "mlu")) is is_wrong


def test_every_name_of_torch_accelerator_itself_is_some_vendors():
    """What `TorchAccelerator` looks for under a name that no vendor has is a misspelling."""
    calls = [
        node
        for path in INTERFACE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]
    asking = ("self._lookup", "self._query_vendor_or_torch", "self._computes")
    asked = {call.args[0].value for call in calls if ast.unparse(call.func) in asking}
    asked |= FORWARDED.keys()
    in_torch = set(FORWARDED.values()) - {""}
    vendors = [
        surfaces.load(name) for name in surfaces.files() if name != "torch_accelerator"
    ]
    known = {
        name
        for vendor in vendors
        for names in vendor.modules.values()
        for name in names
    }
    # The word that is still asked for, beside those for bfloat16 and 8 bits that vendors do give.
    assert asked - known == {"is_fp16_supported"}
    # What is newer than the surface: tests/test_plugin_pages.py holds it against the torch that is here.
    newer = {"random.initial_seed", "random.get_rng_state"}
    assert (
        in_torch - newer
        <= surfaces.load("torch_accelerator").modules["torch.accelerator"].keys()
    )
    assert len(asked) > 30
