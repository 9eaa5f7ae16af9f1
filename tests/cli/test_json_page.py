"""docs/reference/json.md says every key of the documents, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
#: Mappings whose keys are whatever is there.
FREE = ("environ", "sources", "problems", "op_builders", "topics[].findings[].facts")


def keys_of(value: object, at: str = "") -> Iterator[str]:
    """Each key of a document by its path: `devices[].name`."""
    if isinstance(value, dict) and at not in FREE:
        for name, inner in value.items():
            yield from keys_of(inner, f"{at}.{name}" if at else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield f"{at}[]"
        for item in value:
            yield from keys_of(item, f"{at}[]")
    elif isinstance(value, list):
        yield f"{at}[]"
        return
    if at and not isinstance(value, list):
        yield at


def documented() -> dict[str, set[str]]:
    sections = re.split(r"(?m)^##+ (.*)$", PAGE.read_text("utf-8"))[1:]
    return {
        title: set(re.findall(r"(?m)^\| `([^`]+)` \|", body))
        for title, body in zip(sections[::2], sections[1::2], strict=True)
    }


def plain(names: set[str]) -> set[str]:
    """Lists and their items as one: a list may be `null`, or empty."""
    return {re.sub(r"\[\]$", "", name) for name in names}


@pytest.mark.skipif(not PAGE.exists(), reason="the documents are not in this distribution")
def test_every_key_is_on_the_page_and_every_key_of_the_page_is_there(accel):
    pages = {title: plain(names) for title, names in documented().items()}
    accel.install_card()
    accel.world.plugin("early", "import torch\n")
    a_backend = pages.pop("A backend")
    pages["accel list"] |= {f"backends[].{name}" for name in a_backend}
    pages["accel why"] |= {f"verdicts[].{name}" for name in a_backend}
    pages["accel why NAME"] |= {f"backends[].{name}" for name in a_backend}
    pages["What fails"].add("error")
    said = {
        "accel list": accel.json("list"),
        "accel why": accel.json("why"),
        "accel why NAME": accel.json("why", "early", status=1),
        "accel info": accel.json("info"),
        "accel ops": accel.json("ops"),
        "accel doctor": accel.json("doctor", "--topic", "candidates", "early", status=1),
        "What fails": accel.json("why", "nowhere", status=1),
    }
    assert pages.keys() == said.keys()
    for title, document in said.items():
        assert plain(set(keys_of(document))) == pages[title], title
        assert next(iter(document)) == "schema"
        assert document["schema"] == 1
