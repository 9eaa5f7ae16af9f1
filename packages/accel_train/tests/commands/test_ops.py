"""`accel ops`: the table, one operator in detail, and bad input."""

import pytest
from accel_tests.plugins import hook

from accel_core.cli import page
from accel_train.commands import ops as ops_command

#: A plugin's builders: one that is good, one that is not for this card, one whose module is broken.
BUILDERS = """
class CardAdamBuilder:
    def is_compatible(self, verbose=False):
        return True
    def is_built(self):
        return False

class CardLionBuilder:
    def compatibility(self):
        return "the card has no sign\\x1b[31m instruction"
"""
TABLE = """return {
        'FusedAdamBuilder': 'card_ops:CardAdamBuilder', 'FusedLionBuilder': 'card_ops:CardLionBuilder',
        'SortBuilder': 'card_sort:SortBuilder', 'SpinBuilder': 'card_ops:CardLionBuilder',
    } if backend.name == 'card' else {}"""


@pytest.fixture
def card(accel):
    """The command, where a card is installed whose plugin brings operators, and DeepSpeed is not."""
    accel.world.module(
        "deepspeed", "raise ImportError"
    )  # hides what this environment may have
    accel.world.module("card_ops", BUILDERS)
    accel.world.module("card_sort", "raise ImportError('libsort.so: not found')")
    accel.install_card(extra=hook("accel_op_builders", "backend", TABLE))
    return accel


def ops(document):
    return {op["op"]: op["candidates"] for op in document["ops"]}


def test_every_operator_is_listed_with_who_provides_it(card):
    done = card("ops", COLUMNS="300").succeeded()
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    why = r"the card has no sign\x1b[31m instruction"
    for row in (
        "OP PROVIDER BUILT STATUS REASON",
        "FusedAdamBuilder accel-card 1.0 no compatible",
        "FusedLambBuilder accel-train portable yes compatible",
        f"FusedLionBuilder accel-train portable yes compatible skipped: accel-card 1.0: {why}",
        f"SpinBuilder accel-card 1.0 not known not compatible {why}",
    ):
        assert row in rows
    (sort,) = [
        row
        for row in rows
        if row.startswith("SortBuilder accel-card 1.0 not known broken card_sort")
    ]
    assert "libsort.so: not found" in sort
    assert (
        "Backend: card (accel-card). For details of an operator, run `accel ops OPERATOR`."
        in done.stdout
    )
    assert "DeepSpeed also provides operators, but is not installed." in done.stdout


def test_the_document_holds_every_candidate_in_order(card):
    document = card.json("ops")
    assert [document[k] for k in ("backend", "distribution", "deepspeed")] == [
        "card",
        "accel-card",
        False,
    ]
    table = ops(document)
    assert sorted(table) == list(table)
    lion = table["FusedLionBuilder"]
    assert [(c["provider"], c["kind"], c["used"], c["compatible"]) for c in lion] == [
        ("accel-card 1.0", "plugin", False, False),
        ("accel-train portable", "portable", True, True),
    ]
    assert lion[0]["source"] == "card_ops:CardLionBuilder"
    assert lion[0]["file"].endswith("card_ops.py")
    assert lion[1]["file"].endswith("__init__.py")
    (sort,) = table["SortBuilder"]
    assert sort["broken"] is True
    assert sort["used"] is True
    assert sort["built"] is None
    assert sort["file"] is None


@pytest.mark.parametrize("name", ["FusedLion", "fused-lion"])
def test_one_operator_is_found_by_any_of_its_names(card, name):
    assert list(ops(card.json("ops", name))) == ["FusedLionBuilder"]


def test_one_operator_is_shown_with_all_candidates_and_the_one_used(card):
    done = card("ops", "fused_lion").succeeded()
    text = "\n".join(" ".join(line.split()) for line in done.stdout.splitlines())
    assert text.startswith("FusedLionBuilder on card: accel-train portable is used.")
    assert text.index("\naccel-card 1.0\n") < text.index("\n* accel-train portable\n")
    assert "\nreason the card has no sign\\x1b[31m instruction\n" in text
    assert "\nsource card_ops:CardLionBuilder\nfile " in text
    assert "What to do" not in text


def test_two_operators_of_one_normalized_name_are_both_shown():
    candidate = {
        "provider": "torch",
        "reason": "",
        "used": True,
        "compatible": True,
        "broken": False,
        "built": None,
        "source": "",
        "file": None,
    }
    operators = [
        {"op": name, "candidates": [candidate]} for name in ("FusedAdam", "fused_adam")
    ]
    document = {"backend": "acme", "deepspeed": False, "ops": operators}
    shown = page.to_text(ops_command._operator_page(document), 100, in_colour=False)
    assert "FusedAdam" in shown
    assert "fused_adam" in shown


@pytest.mark.parametrize(
    ("name", "reason"), [("spin", "the card has no sign"), ("sort", "libsort.so")]
)
def test_an_operator_that_cannot_be_used_ends_with_1_and_the_next_step(
    card, name, reason
):
    done = card("ops", name)
    assert done.returncode == 1
    assert "accel-card 1.0 would be tried, but cannot be used." in done.stdout
    assert reason in done.stdout
    assert (
        "install a plugin that provides the operator for card, or install DeepSpeed: pip "
        "install deepspeed." in " ".join(done.stdout.split())
    )


def test_an_unknown_operator_is_bad_usage_with_close_matches(card):
    done = card("ops", "fused_adan")
    assert done.returncode == 2
    assert (
        "unknown operator or backend 'fused_adan'. Did you mean FusedAdamBuilder"
        in done.stderr
    )
    assert done.stdout == ""
    error = card.json("ops", "zzz", status=2)["error"]
    assert error["type"] == "UsageError"
    assert (
        error["message"]
        == "unknown operator or backend 'zzz'. `accel ops` lists all operators."
    )


def test_a_name_is_the_backend_as_everywhere(card):
    assert card.json("ops", "cpu")["backend"] == "cpu"
    assert (
        card.json("ops", "cpu", "FusedAdam")["ops"][0]["candidates"][0]["kind"]
        == "portable"
    )
    unknown = card("ops", "cpuu")
    assert unknown.returncode == 2
    assert "Did you mean cpu?" in unknown.stderr


def test_without_torch_there_is_a_clear_error(accel):
    done = accel("ops", torch=False)
    assert done.returncode == 1
    assert "torch is not installed" in done.stderr
    assert "Traceback" not in done.stderr
    error = accel.json("ops", "FusedAdam", torch=False, status=1)["error"]
    assert "torch is not installed" in error["message"]
