"""The tables of packages that vendors' plugins bring: read, dated, and refused by name where malformed."""

import datetime as dt

import pytest

from accel_core import packages
from accel_core.hardware import vendors
from accel_core.isolation import IsolatedLoader
from accel_core.plugins import find_backends
from accel_core.settings import read as read_settings
from accel_tools.setup import planning, recipes

ROW = {
    "torch": "2.9.0",
    "packages": ["torch-acme==1.0"],
    "date": "2024-01-01",
    "source": "https://a.example",
}
TABLE = {"url": "https://acme.example/install", "rows": [ROW]}


@pytest.fixture
def plugins_table(monkeypatch):
    """`plugins_table(table)`: an installed plugin's recipe of acme, whose card is PCI vendor 10de."""

    class EntryPoint:
        name, value = "acme", "acme:RECIPE"

        def __init__(self, table):
            self.load = lambda: table

    return lambda table: monkeypatch.setattr(
        recipes, "permitted_entry_points", lambda _: (EntryPoint(table),)
    )


def test_a_plugins_table_is_read(plugins_table, planned_for):
    plugins_table(TABLE)
    found = planned_for({}, "acme")
    assert found.torch == "torch==2.9.0"
    assert found.packages == ("torch-acme==1.0",)


def test_a_table_older_than_a_year_says_so(plugins_table, planned_for):
    plugins_table(TABLE)
    assert (
        planned_for({}, "acme")
        .notes[0]
        .startswith(
            "This table is from 2024-01-01, more than a year ago. Next step: compare it with"
        )
    )


def test_a_table_of_today_has_no_note(plugins_table, planned_for):
    today = str(dt.datetime.now(tz=dt.timezone.utc).date())
    plugins_table({**TABLE, "rows": [{**ROW, "date": today}]})
    assert planned_for({}, "acme").notes == ()


MALFORMED = [
    (7, "expected a dict, got int"),
    ({"url": "see the manual"}, "url: expected the URL"),
    ({**TABLE, "pip": "x"}, "unknown key 'pip'"),
    ({**TABLE, "rows": [{**ROW, "python": "3.x"}]}, "row 0: Invalid specifier"),
    ({**TABLE, "rows": [{**ROW, "date": "May"}]}, "row 0: Invalid isoformat"),
    ({**TABLE, "rows": [{**ROW, "source": ""}]}, "row 0: source"),
    ({**TABLE, "rows": [{"torch": "2.9.0"}]}, "row 0:"),
]


@pytest.mark.parametrize(("table", "why"), MALFORMED)
def test_a_malformed_table_is_named_and_stops_nothing(
    plugins_table, planned_for, table, why
):
    plugins_table(table)
    (note,) = planned_for({}).notes
    assert note.startswith("the package table of acme (acme:RECIPE) cannot be read: ")
    assert why in note


def test_the_copies_are_what_the_plugins_declare():
    """tools/recipes.py writes them."""
    declared = {
        found.name: found.load() for found in packages.entry_points(recipes.GROUP)
    }
    assert declared == recipes._first_party_tables()
    assert declared.keys() >= {"neuron", "npu", "tpu", "rbln"}
    assert recipes.read_recipes()[1] == ()


def test_a_plugin_of_ours_leaves_installing_to_setup():
    """Intel's two older ways, through packages of its own, have no table."""
    found = find_backends(None, read_settings(), IsolatedLoader(60))
    ours = [
        c.backend
        for c in found
        if c.backend is not None and c.name in vendors.FIRST_PARTY
    ]
    assert {backend.name for backend in ours} == vendors.FIRST_PARTY.keys()
    assert vendors.FIRST_PARTY.keys() <= {*planning.hardware_names()}
    others = {b.install_hint for b in ours if b.install_hint != f"accel setup {b.name}"}
    assert len(others) <= 1, others
