"""tools/plain_english.py: an area above its bound fails with the place; the bounds only shrink."""

from __future__ import annotations

import json

import pytest
from accel_tests.tools import load

tool = load("plain_english")


@pytest.fixture
def tree(tmp_path):
    for folder in ("src/accel_core", "docs", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/accel_core/a.py").write_text('"""What it is."""\n\ndef f():\n    """Give whatever."""\n')
    (tmp_path / "docs/a.md").write_text(
        "Mended, `said` and found.\n\n```sh\nsaid\n```\n\nThe reason is told.\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("area", "place"),
    [("src/accel_core", "src/accel_core/a.py:1: What it is."), ("pages", "docs/a.md:7: told")],
)
def test_an_area_above_its_bound_fails_and_the_place_is_named(tree, capsys, area, place):
    bounds = {"src/accel_core": 1, "pages": 2}
    (tree / tool.BOUNDS).write_text(json.dumps(bounds))
    assert tool.main([], tree) == 0
    (tree / tool.BOUNDS).write_text(json.dumps({**bounds, area: bounds[area] - 1}))
    assert tool.main([], tree) == 1
    assert place in capsys.readouterr().out


def test_bounds_are_lowered_and_never_raised(tree):
    (tree / tool.BOUNDS).write_text(json.dumps({"src/accel_core": 5, "pages": 1}))
    assert tool.main(["--write"], tree) == 1
    assert json.loads((tree / tool.BOUNDS).read_text()) == {"src/accel_core": 1, "pages": 1}
