"""Every vendor name in a plugin's source is in its vendor's surface, and every call fits."""

import ast
import importlib

import pytest
from accel_contracts.plugins import PLUGINS, ROOT, declared, everything
from accel_contracts.static import uses, violations
from accel_tests import surfaces

from accel_core.interface.torch_device import FORWARDED

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
            if other.device_type
            == backend.device_type
            == backend.torch_integration.takes_over
            for name in other.torch_integration.taken_over_by
        }
        assert tops <= {"torch", *found.packages, *behind}


def test_the_ranges_that_a_plugin_names_are_its_vendors(plugin):
    for backend in declared(plugin):
        module, _, name = (
            backend.accelerator or "accel_core:TorchAccelerator"
        ).partition(":")
        ranges = getattr(importlib.import_module(module), name)._range_module
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
def test_a_name_or_a_call_that_the_surface_lacks_is_found(body, is_wrong):
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
    asking = (
        "self._vendor_attribute",
        "self._query_vendor_or_torch",
        "self._is_dtype_supported",
    )
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
    # What is newer than the surface: tests/test_member_page.py holds it against the torch that is here.
    newer = {"random.initial_seed", "random.get_rng_state"}
    assert (
        in_torch - newer
        <= surfaces.load("torch_accelerator").modules["torch.accelerator"].keys()
    )
    assert len(asked) > 30
