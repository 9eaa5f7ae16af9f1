"""A declaration is checked when it is built, and says everything that is wrong with it at once."""

import copy
import pickle
from dataclasses import MISSING, fields, replace

import pytest

from accel_core import backend as backend_module
from accel_core.backend import (
    Backend,
    Environment,
    Hardware,
    Provenance,
    ResourceRequest,
    TorchIntegration,
    Visibility,
)
from accel_core.errors import AccelError, InvalidBackendError


def declare(**given):
    return Backend(**{"name": "npu", "priority": 700, "device_type": "npu", **given})


def test_the_least_declaration_has_defaults_for_the_rest():
    backend = declare()
    assert backend.name == "npu"
    assert backend.priority == 700
    assert backend.device_type == "npu"
    assert backend.vendor_imports == ("torch",)
    assert backend.vendor_import == ("torch",)
    assert backend.distribution == ""


def test_everything_but_the_required_fields_has_a_default():
    """A field that is added must not break a plugin that was written before."""
    required = [field.name for field in fields(Backend) if field.default is MISSING]
    assert required == ["name", "priority", "device_type"]


def test_one_vendor_import_or_several():
    assert declare(vendor_import="torch_npu").vendor_imports == ("torch_npu",)
    assert declare(vendor_import=("a.b", "c")).vendor_imports == ("a.b", "c")


def test_it_is_frozen_hashable_picklable_and_can_be_replaced():
    backend = declare(requires=("torch>=2.6",))
    with pytest.raises(AttributeError):
        backend.priority = 1
    assert pickle.loads(pickle.dumps(backend)) == backend
    assert copy.deepcopy(backend) == backend
    assert hash(replace(backend)) == hash(backend)
    from_somewhere = replace(backend, provenance=Provenance("accel-npu", "1.2"))
    assert from_somewhere.distribution == "accel-npu"
    assert str(from_somewhere.provenance) == "accel-npu 1.2"


@pytest.mark.parametrize("name", ["npu", "xpu.external", "a1", "a_b.c_d", "x.y.z"])
def test_good_names(name):
    assert declare(name=name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NPU",
        " npu",
        "npu ",
        "n pu",
        "1npu",
        ".npu",
        "npu.",
        "n..u",
        "npu,cuda",
        "npu@x",
        "nPu",
        "np\u00fc",
        "n-u",
    ],
)
def test_a_name_that_could_not_be_pinned_is_refused(name):
    with pytest.raises(InvalidBackendError, match=r"name .* is malformed"):
        declare(name=name)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", 3, "name 3 is int, expected str"),
        ("name", None, "name None is NoneType, expected str"),
        ("priority", "high", "priority 'high' is str, expected int"),
        (
            "priority",
            10**10,
            "priority 10000000000 is malformed, expected a number from -1000000000 to",
        ),
        ("priority", 1.5, "priority 1.5 is float, expected int"),
        ("priority", True, "priority True is bool, expected int"),
        ("priority", None, "priority None is NoneType, expected int"),
        ("device_type", "NPU", "device_type 'NPU' is malformed"),
        ("device_type", "npu:0", "device_type 'npu:0' is malformed"),
        ("vendor_import", "torch-npu", "vendor_import 'torch-npu' is malformed"),
        ("vendor_import", (), "vendor_import is empty"),
        (
            "vendor_import",
            ["torch_npu"],
            "vendor_import ['torch_npu'] is list, expected a tuple of str",
        ),
        (
            "vendor_import",
            ("a", 1),
            "vendor_import ('a', 1) is tuple, expected a tuple of str",
        ),
        ("accelerator", "accel_npu.NPU", "accelerator 'accel_npu.NPU' is malformed"),
        ("accelerator", "a:b.c", "accelerator 'a:b.c' is malformed"),
        (
            "requires",
            "torch>=2.6",
            "requires 'torch>=2.6' is str, expected a tuple of str",
        ),
        ("hardware", "NPU", "hardware 'NPU' is str, expected Hardware"),
        ("hardware", ("NPU",), "hardware ('NPU',) is tuple, expected Hardware"),
        ("hardware", Hardware(name=1), "hardware.name 1 is int, expected str"),
        (
            "hardware",
            Hardware(nodes="/dev/x"),
            "hardware.nodes '/dev/x' is str, expected a tuple of str",
        ),
        (
            "hardware",
            Hardware(nodes=("dev/npu",)),
            "hardware.nodes 'dev/npu' is malformed",
        ),
        ("hardware", Hardware(nodes=("/",)), "hardware.nodes '/' is malformed"),
        ("hardware", Hardware(nodes=("",)), "hardware.nodes '' is malformed"),
        (
            "hardware",
            Hardware(nodes=("/dev/**/npu",)),
            "hardware.nodes '/dev/**/npu' is malformed",
        ),
        (
            "hardware",
            Hardware(pci_ids=("10DE",)),
            "hardware.pci_ids '10DE' is malformed",
        ),
        (
            "hardware",
            Hardware(pci_ids=("0x10de",)),
            "hardware.pci_ids '0x10de' is malformed",
        ),
        ("visibility", Visibility(("A B",)), "visibility.variables 'A B' is malformed"),
        (
            "visibility",
            Visibility(grammar="x"),
            "visibility.grammar 'x' is malformed, expected one of cuda",
        ),
        ("request", {}, "request {} is dict, expected ResourceRequest"),
        (
            "request",
            ResourceRequest(slurm=("gpu",)),
            "request.slurm ('gpu',) is tuple, expected str",
        ),
        (
            "torch_integration",
            TorchIntegration(builds=("rocm",)),
            "torch_integration.builds 'rocm' is malformed, expected one of cuda",
        ),
        (
            "torch_integration",
            TorchIntegration(taken_over_by=("a.b",)),
            "torch_integration.taken_over_by 'a.b' is malformed",
        ),
        (
            "torch_integration",
            TorchIntegration(takes_over="torch.cuda"),
            "torch_integration.takes_over 'torch.cuda' is malformed",
        ),
        (
            "torch_integration",
            TorchIntegration(private_use1=1),
            "torch_integration.private_use1 1 is int, expected bool",
        ),
        (
            "environment",
            Environment(defaults=("A",)),
            "environment.defaults 'A' is malformed",
        ),
        (
            "provenance",
            "accel-npu",
            "provenance 'accel-npu' is str, expected Provenance",
        ),
        ("hints", (("a",),), "hints ('a',) is malformed"),
        ("hints", {}, "hints {} is dict, expected a tuple of pairs of str"),
        (
            "known_differences",
            ("a",),
            "known_differences 'a' is malformed, expected e.g. ('compute",
        ),
        ("description", None, "description None is NoneType, expected str"),
    ],
)
def test_a_malformed_field_is_named_with_its_value(field, value, said):
    with pytest.raises(InvalidBackendError) as caught:
        declare(**{field: value})
    assert said in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AccelError)


@pytest.mark.parametrize("value", ["", "PT_HPU", "=1", "1A=2", "A B=1"])
def test_a_variable_that_is_not_an_assignment_is_refused(value):
    with pytest.raises(
        InvalidBackendError, match=r"environment.defaults .* is malformed"
    ):
        declare(environment=Environment(defaults=(value,)))


@pytest.mark.parametrize("value", ["PT_HPU_LAZY_ACC_PAR_MODE=0", "A=", "A=b=c d"])
def test_a_variable_may_have_any_value(value):
    assert declare(environment=Environment(defaults=(value,))).environment.defaults == (
        value,
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hardware", Hardware(pci_ids=("10de", "10de:2335", "10de/03", "1002/12"))),
        (
            "hardware",
            Hardware(nodes=("/dev/davinci[0-9]*", "/usr/lib/wsl/lib/libcuda.so.1")),
        ),
        ("hardware", Hardware(platforms=("linux", "darwin-arm64"))),
        ("torch_integration", TorchIntegration(private_use1=True, takes_over="cuda")),
        ("accelerator", "a.b:C"),
        ("priority", -5),
        *(
            ("visibility", Visibility(grammar=grammar))
            for grammar in backend_module.GRAMMARS
        ),
    ],
)
def test_well_formed_fields_are_taken(field, value):
    assert getattr(declare(**{field: value}), field) == value


def test_every_fault_is_named_at_once():
    with pytest.raises(InvalidBackendError) as caught:
        declare(
            name="N",
            device_type="",
            hardware=Hardware(pci_ids=("x",)),
            visibility=Visibility(grammar="?"),
        )
    for it in (
        "backend 'N'",
        "name 'N'",
        "device_type ''",
        "hardware.pci_ids 'x'",
        "visibility.grammar '?'",
    ):
        assert it in str(caught.value)
    with pytest.raises(InvalidBackendError) as caught:
        declare(priority="1", torch_integration=TorchIntegration(private_use1=None))
    for part in (
        "priority '1' is str",
        "torch_integration.private_use1 None is NoneType",
    ):
        assert part in str(caught.value)


def test_what_is_missing_or_unknown_is_a_type_error_as_for_any_class():
    makers = (lambda: declare(colour="red"), lambda: Hardware(colour="red"))
    for make in (*makers, lambda: replace(declare(), colour="red")):
        with pytest.raises(TypeError, match="'colour'") as caught:
            make()
        assert backend_module.is_unknown_field_error(caught.value)
    assert not backend_module.is_unknown_field_error(
        TypeError("f() got an unexpected keyword argument 'x'")
    )
    with pytest.raises(TypeError, match="priority"):
        Backend(name="npu", device_type="npu")


@pytest.mark.parametrize(
    "prefix", ["", "A", "AB", "_", "___", "A__", "NCCL*", "npu-", "É_X", "A B"]
)
def test_a_prefix_that_forwards_too_much_or_nothing_is_a_fault(prefix):
    """An empty one sent the whole environment to every host, secrets with it."""
    with pytest.raises(InvalidBackendError) as refused:
        declare(environment=Environment(forward=("HCCL", prefix)))
    assert (
        f"environment.forward {prefix!r} is malformed, "
        "expected a prefix of three characters or more, such as 'HCCL_'"
        in str(refused.value)
    )


def test_the_prefixes_of_real_vendors_are_none():
    real = ("HCCL", "FI_", "UR_", "CCL", "LD_LIBRARY", "PATH", "XPU", "_CARD_X")
    assert declare(environment=Environment(forward=real)).environment.forward == real
