"""`accel info`: what a live accelerator is and can do."""

import dataclasses
import re

import pytest

from accel_core.interface.records import Capabilities
from accel_tools.commands import info


def test_tells_what_the_device_is_and_can_do(accel):
    accel.install_card()
    document = accel.json("info", CARD_VISIBLE_DEVICES="4,5")
    assert (document["name"], document["distribution"], document["how"]) == (
        "card",
        "accel-card",
        "ranked",
    )
    first = document["devices"][0]
    assert first["index"] == 0
    assert first["torch_device"] == "card:0"
    assert first["total_memory"] == 80 * 2**30
    assert first["capability"] == [9, 0]
    assert document["dtypes"] == ["float32", "bfloat16"]
    assert document["communication_backend_version"] == [2, 27, 3]
    assert document["streams"] is True
    assert document["visible_device_ids"] == [4, 5]
    assert document["capabilities"]["supports_graphs"] is False
    assert document["problems"] == {}


def test_the_page_reads_the_same(accel):
    accel.install_card()
    done = accel("info", COLUMNS="80").succeeded()
    assert max(map(len, done.stdout.splitlines())) <= 80
    text = " ".join(done.stdout.split())
    for words in (
        "card (accel-card 1.0): somebody's card", "chosen as the highest-ranking usable one", "2 devices",
        "0 card:0 80.0 GiB 60.0 GiB", "capability 9.0, 132 compute units", "float32, bfloat16",
        "gloo 2.27.3", "FusedAdamBuilder", "CARD_VISIBLE_DEVICES (not set: all devices)", "CARD*, CCL*",
        "streams yes", "graphs no", "not supported", "fp8 no", "fp64 yes", "NVTX domains",
    ):  # fmt: skip
        assert words in text
    # In words: no answer goes by its member's name, and none is left out.
    assert not re.search(r"\b(is|supports|prefer)_|fp8, fp64", text)
    names = {field.name for field in dataclasses.fields(Capabilities)}
    lines = {
        "supports_graphs",
        "is_fp8_supported",
        "is_fp64_supported",
        "is_triton_supported",
    }
    assert names - lines == info._IN_WORDS.keys()
    assert (
        "CARD_VISIBLE_DEVICES (now 4,5)"
        in accel("info", CARD_VISIBLE_DEVICES="4,5").stdout
    )
    assert (
        "CARD_VISIBLE_DEVICES (now none)"
        in accel("info", "card", CARD_VISIBLE_DEVICES="").stdout
    )


def test_a_device_that_fails_hides_nothing_else(accel):
    accel.install_card(
        more="def device_properties(self, device_index=None): raise RuntimeError('wedged')"
    )
    done = accel("info")
    assert done.returncode == 1
    assert "What failed" in done.stdout
    assert "device_properties(1)  RuntimeError: wedged" in done.stdout
    assert "gloo 2.27.3" in done.stdout
    document = accel.json("info", "card", status=1)
    assert document["devices"][1]["name"] == ""
    assert document["devices"][1]["available_memory"] == 60 * 2**30
    assert document["how"] is None


def test_answers_of_another_kind_are_problems_and_the_document_is_json(accel):
    lies = """
    def device_name(self, device_index=None): return {"index": device_index}
    def available_memory(self, device_index=None): return float("nan")
    def device_properties(self, device_index=None):
        return DeviceProperties(name="Card", total_memory=float("inf"))
    def device_count(self): return 100_000
"""
    accel.install_card(more=lies)
    document = accel.json("info", "card", status=1)
    assert document["device_count"] == 100_000
    assert len(document["devices"]) == 128
    assert document["devices"][0]["available_memory"] is None
    problems = document["problems"]
    assert (
        problems["device_name(0)"]
        == "TypeError: it gave {'index': 0} (dict), expected str"
    )
    assert (
        problems["available_memory(0)"]
        == "TypeError: it gave nan (float), expected int"
    )
    assert (
        problems["device_properties(0)"]
        == "TypeError: total_memory is inf (float), expected int"
    )
    page = accel("info", "card").stdout
    assert "100000 devices" in page
    assert "99872 more, not examined." in page


OTHERWISE = [
    # A kind of text is text.
    (
        'def device_name(self, i=None): return type("Name", (str,), {})("Card of ours")',
        0,
        "Card of ours",
    ),
    (
        "def is_bf16_supported(self): raise OSError('no driver')",
        1,
        "capabilities()  OSError: no driver",
    ),
    ("def device_count(self): return 0", 0, "0 devices"),
    (
        "Stream = HostStream",
        0,
        "not supported (one queue; times come from the host's clock)",
    ),
]


@pytest.mark.parametrize(("member", "status", "words"), OTHERWISE)
def test_members_that_are_told_otherwise(accel, member, status, words):
    accel.install_card(more=member)
    done = accel("info", "card")
    assert done.returncode == status, done.stderr
    assert words in done.stdout
    assert ("not known" in done.stdout) is bool(status)


def test_other_warnings_stay_as_they_are(accel):
    accel.install_card()
    accel.world.plugin(
        "warns",
        "import warnings\nwarnings.simplefilter('always')\nwarnings.warn('news')\n",
    )
    assert ": UserWarning: news" in accel("info", process=True).stderr
