"""What holds for every first-party plugin: order, hints, and what it ships.

That its hooks fit and its module is inert is level 0 of the kit, which accel-simulated's tests run.
"""

import ast
import importlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from accel_contracts.plugins import PLUGINS, ROOT, declared, import_plugin
from accel_tests.asking import verdict_on

from accel_core import Backend, Provenance, hint_for
from accel_core.build import Group, explain_error
from accel_core.hints import COMMON
from accel_testing.commands.new import TORCH_TYPES
from accel_testing.conformance import catalogue

#: DeepSpeed's order of detection, and after it what DeepSpeed does not know.
PRIORITIES = {
    "xpu.external": {900}, "xpu": {800, 790}, "npu": {700}, "sdaa": {600}, "mps": {500}, "hpu": {400},
    "tpu": {350}, "neuron": {340}, "mlu": {300}, "musa": {290}, "supa": {250}, "klxpu": {225},
    "cuda": {200, 190}, "rbln": {175},
}  # fmt: skip


def test_priorities_are_deepspeeds_and_torch_is_known(plugin):
    """How a backend with such fields is judged is told in tests/detection."""
    for backend in declared(plugin):
        assert backend.torch_integration.private_use1 is (
            backend.device_type not in TORCH_TYPES
        )
        assert any(each.startswith("torch>=2.") for each in backend.requires)
        assert backend.priority in PRIORITIES[backend.name], backend.name
        assert backend.hardware.name, "every device has a name for people"


def test_one_takes_anothers_place_before_it():
    backends = [backend for plugin in PLUGINS for backend in declared(plugin)]
    by_name = {backend.name: backend for backend in backends}
    for backend in backends:
        assert (
            not backend.torch_integration.takes_over
            or by_name[backend.torch_integration.takes_over].priority < backend.priority
        )


def test_what_is_behind_anothers_namespace_is_known_to_that_other():
    """Nothing else tells them apart."""
    backends = [backend for plugin in PLUGINS for backend in declared(plugin)]
    behind = [b for b in backends if b.torch_integration.takes_over == b.device_type]
    assert [b.name for b in behind] == ["klxpu"]
    for backend in behind:
        for other in backends:
            if other.device_type == backend.device_type and other is not backend:
                assert set(backend.vendor_imports) <= set(
                    other.torch_integration.taken_over_by
                )


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
                (words, check) for check, words in backend.known_differences
            ], backend.name
            assert {check for _, check in told} <= checks
        for file in plugin.glob(
            "tests/real/expected.toml"
        ):  # what is wrong silently is no vendor's error
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


def test_a_plugin_explains_no_error_that_it_does_not_know(plugin):
    assert {step for message in NOBODYS for step in explained(plugin, message)} == {""}


def test_three_plugins_explain_a_missing_library_of_cudas_name():
    known = {plugin.name for plugin in PLUGINS if explained(plugin, CUDAS) != {""}}
    assert known == {"accel_cuda", "accel_klxpu", "accel_supa"}


#: By plugin: variables that are each host's own, and variables that go to the job's other hosts.
VARIABLES = {
    "cuda": {
        "kept": ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"],
        "forwarded": ["NCCL_DEBUG", "RCCL_MSCCL", "FI_PROVIDER", "UCX_TLS"],
    },
    "hpu": {
        "kept": ["HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID"],
        "forwarded": [
            "PT_HPU_LAZY_MODE",
            "HCCL_OVER_OFI",
            "HABANA_LOGS",
            "HABANA_PROFILE",
        ],
    },
    "mlu": {
        "kept": ["MLU_VISIBLE_DEVICES", "CN_VISIBLE_DEVICES"],
        "forwarded": ["NEUWARE_HOME", "CNCL_MEM"],
    },
    "musa": {
        "kept": ["MUSA_VISIBLE_DEVICES"],
        "forwarded": ["MUSA_HOME", "MCCL_X", "TORCH_MCCL_X", "PYTORCH_MUSA_ALLOC_CONF"],
    },
    "neuron": {
        "kept": [
            "NEURON_RT_VISIBLE_CORES",
            "NEURON_RT_NUM_CORES",
            "NEURON_RT_ROOT_COMM_ID",
        ],
        "forwarded": [
            "TORCH_NEURONX_DEBUG_DIR",
            "NEURON_CC_FLAGS",
            "NEURON_RT_LOG_LEVEL",
        ],
    },
    "npu": {"kept": [], "forwarded": ["ASCEND_HOME_PATH", "HCCL_IF_IP"]},
    "rbln": {
        "kept": ["RBLN_LOCAL_IP", "RBLN_RDMA_IP", "RBLN_DEVICES"],
        "forwarded": ["RBLN_ROOT_IP", "RBLN_NPUS_PER_DEVICE", "TORCH_RBLN_LOG_LEVEL"],
    },
    "xpu": {
        "kept": ["ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"],
        "forwarded": [
            "CCL_WORKER_COUNT",
            "FI_PROVIDER",
            "ZE_FLAT_DEVICE_HIERARCHY",
            "SYCL_CACHE_PERSISTENT",
        ],
    },
    "supa": {"kept": [], "forwarded": ["BCCL_X", "BIREN_X", "SUPA_X", "BRTB_X"]},
    "sdaa": {"kept": [], "forwarded": ["TCCL_X", "SDAA_X", "TECO_X", "TORCH_SDAA_X"]},
    "klxpu": {
        "kept": ["CUDA_VISIBLE_DEVICES"],
        "forwarded": ["BKCL_X", "XPU_X", "XMLIR_X"],
    },
}


def declared_prefixes(name):
    """The beginnings of names that each backend of this plugin declares as forwarded."""
    backends = declared(ROOT / f"plugins/accel_{name}")
    return [backend.environment.forward for backend in backends]


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_that_are_each_hosts_own_stay_on_it(name):
    """What selects devices, and a host's own addresses, are each host's affair."""
    for prefixes in declared_prefixes(name):
        for variable in VARIABLES[name]["kept"]:
            assert not variable.startswith(prefixes)


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_of_the_vendor_go_to_other_hosts(name):
    for prefixes in declared_prefixes(name):
        for variable in VARIABLES[name]["forwarded"]:
            assert variable.startswith(prefixes)


@pytest.mark.parametrize("name", VARIABLES)
def test_no_plugin_forwards_the_paths_that_go_for_every_vendor(name):
    for prefixes in declared_prefixes(name):
        assert not {"LD_LIBRARY", "PATH"} & {*prefixes}


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


def test_a_plugin_ships_licence_types_entry_point_and_installing(plugin):
    assert (plugin / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (plugin / "src" / plugin.name / "py.typed").exists()
    project = (plugin / "pyproject.toml").read_text()
    assert f'name = "{plugin.name.replace("_", "-")}"' in project
    assert (
        f'= "{plugin.name}"'
        in project.partition('[project.entry-points."accel.backends"]')[2]
    )
    assert "pip install . plugins" in (plugin / "README.md").read_text()
