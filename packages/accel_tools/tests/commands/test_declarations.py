"""`accel declarations`: every field of the declarations, with a schema, and without torch."""

import json
from dataclasses import asdict, fields, is_dataclass

import jsonschema
import pytest
from click.testing import CliRunner

from accel_core import Backend, Hardware, ResourceRequest, TorchIntegration, Visibility
from accel_tools.commands.declarations import command

FIELDS = {field.name for field in fields(Backend)} - {"provenance"}
GIVEN = {
    "visibility": Visibility(("CARD_VISIBLE_DEVICES",)),
    "hardware": Hardware(pci_ids=("10de/03",)),
    "request": ResourceRequest(kubernetes="card.com/gpu"),
    "hints": (("lib(card)\\.so", "install \"the\" driver é"),),
    "torch_integration": TorchIntegration(private_use1=True),
}  # fmt: skip


@pytest.fixture
def schema(accel):
    """What `--schema` prints."""
    done = accel("declarations", "--schema", torch=False).succeeded()
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


@pytest.fixture
def without_torch(accel):
    """`accel declarations` where torch is not installed; what it imports is on stderr."""
    accel.world.backend("card", **GIVEN)
    watched = frozenset({"torch", "accel_card"})
    return accel("declarations", torch=False, watched=watched).succeeded()


def test_neither_torch_nor_a_plugin_is_imported(without_torch):
    """Plugins are read in a child process."""
    assert without_torch.stderr.endswith("loaded: []")


def test_every_declaration_is_there_and_fits_the_schema(without_torch, schema):
    document = json.loads(without_torch.stdout)
    schema.validate(document)
    names = [declaration["name"] for declaration in document["backends"]]
    assert names == ["card", "generic", "cpu"]
    assert document["unread"] == []


def test_every_field_of_a_declaration_is_there(without_torch):
    card = json.loads(without_torch.stdout)["backends"][0]
    assert card.keys() == FIELDS | {"distribution", "version", "entry_point"}
    assert card["distribution"] == "accel-card"
    assert card["entry_point"] == "accel_card"
    assert card["vendor_import"] == ["json"]
    for name, value in GIVEN.items():
        plain = asdict(value) if is_dataclass(value) else value
        assert card[name] == json.loads(json.dumps(plain))


@pytest.fixture
def document(accel):
    """What `accel declarations card` prints."""
    accel.world.backend("card", **GIVEN)
    return accel.json("declarations", "card")


def test_the_schema_describes_each_field(document, schema):
    described = schema.schema["oneOf"][0]["properties"]["backends"]["items"][
        "properties"
    ]
    assert described.keys() == document["backends"][0].keys()
    assert (
        described["hardware"]["properties"].keys()
        == document["backends"][0]["hardware"].keys()
    )
    every = [each for each in described.values() if "properties" not in each]
    every += [
        each
        for record in described.values()
        for each in record.get("properties", {}).values()
    ]
    assert all(each["description"] and "type" in each for each in every)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hardware", {"nodes": ""}),
        ("priority", "1"),
        ("hints", [["one"]]),
        ("name", None),
    ],
)
def test_the_schema_refuses_a_value_of_another_kind(document, schema, name, value):
    document["backends"][0][name] = value
    assert not schema.is_valid(document)


def test_the_schema_requires_each_field_of_a_record(document, schema):
    del document["backends"][0]["hardware"]["nodes"]
    assert not schema.is_valid(document)


def test_a_plugin_that_fails_hides_no_other_and_is_named(accel, schema):
    accel.world.backend("card", **GIVEN)
    accel.world.plugin("bad", "raise OSError('libbad.so: cannot open')")
    accel.world.plugin("dies", "import os\nos._exit(3)")
    document = accel.json("declarations", status=1)
    schema.validate(document)
    assert document["backends"][0]["name"] == "card"
    reasons = {
        each["name"]: (each["status"], each["reason"]) for each in document["unread"]
    }
    assert reasons["bad"][0] == "broken"
    assert "libbad.so: cannot open" in reasons["bad"][1]
    assert reasons["dies"][0] == "crashed"
    assert accel("declarations", "card").returncode == 0


def test_what_the_policy_blocks_is_named_and_no_failure(accel):
    accel.world.backend("card")
    document = accel.json("declarations", ACCEL_BLOCK="card")
    assert [(each["name"], each["status"]) for each in document["unread"]] == [
        ("card", "blocked")
    ]


def test_one_name_gives_that_declaration(accel):
    [declaration] = accel.json("declarations", "cpu")["backends"]
    assert declaration["communication_backend"] == "gloo"


def test_a_name_that_nobody_declares_is_an_error(accel, schema):
    document = accel.json("declarations", "nowhere", status=2)
    schema.validate(document)
    assert document["error"]["type"] == "BackendNotFoundError"
    assert (
        "accel declarations nowhere: no installed distribution declares nowhere"
        in document["error"]["message"]
    )


def test_our_own_plugins_fit_the_schema():
    asked = (CliRunner().invoke(command, more).stdout for more in ([], ["--schema"]))
    document, schema = map(json.loads, asked)
    jsonschema.Draft202012Validator(schema).validate(document)
    npu = next((each for each in document["backends"] if each["name"] == "npu"), None)
    if npu is None:
        pytest.skip("accel-npu is not installed")
    assert npu["request"]["kubernetes"] == "huawei.com/Ascend910"
