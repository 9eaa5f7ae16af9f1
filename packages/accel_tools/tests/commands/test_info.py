"""`accel info`: what a live accelerator is and can do."""

import dataclasses
import re

import pytest

from accel_core.interface.records import Capabilities
from accel_tools.commands import info


@pytest.fixture
def document(accel):
    """What `accel info --json` prints of two visible cards."""
    accel.install_card()
    return accel.json("info", CARD_VISIBLE_DEVICES="4,5")


def test_the_document_names_the_accelerator_and_how_it_was_chosen(document):
    assert document["name"] == "card"
    assert document["distribution"] == "accel-card"
    assert document["how"] == "ranked"


def test_the_document_describes_each_device(document):
    first = document["devices"][0]
    assert first["index"] == 0
    assert first["torch_device"] == "card:0"
    assert first["total_memory"] == 80 * 2**30
    assert first["capability"] == [9, 0]
    assert document["visible_device_ids"] == [4, 5]


def test_the_document_has_what_the_accelerator_can_do(document):
    assert document["dtypes"] == ["float32", "bfloat16"]
    assert document["communication_backend_version"] == [2, 27, 3]
    assert document["streams"] is True
    assert document["capabilities"]["supports_graphs"] is False


def test_the_document_of_a_device_that_answers_has_no_problems(document):
    assert document["problems"] == {}


@pytest.fixture
def page(accel):
    """What `accel info` prints at 80 columns."""
    accel.install_card()
    return accel("info", COLUMNS="80").succeeded().stdout


def test_the_page_fits_80_columns(page):
    assert max(map(len, page.splitlines())) <= 80


def test_the_page_reads_as_the_document(page):
    text = " ".join(page.split())
    for words in (
        "card (accel-card 1.0): somebody's card", "chosen as the usable backend with the highest priority",
        "2 devices",
        "0 card:0 80.0 GiB 60.0 GiB", "capability 9.0, 132 compute units", "float32, bfloat16",
        "gloo 2.27.3", "FusedAdamBuilder", "CARD*, CCL*",
        "CARD_VISIBLE_DEVICES (not set, so all devices are visible)",
        "streams yes", "graphs no", "not supported", "fp8 no", "fp64 yes", "NVTX domains",
    ):  # fmt: skip
        assert words in text


def test_no_answer_on_the_page_goes_by_its_members_name(page):
    assert not re.search(r"\b(is|supports|prefer)_|fp8, fp64", " ".join(page.split()))


def test_the_page_leaves_out_no_capability():
    names = {field.name for field in dataclasses.fields(Capabilities)}
    of_other_lines = {
        "supports_graphs",
        "is_fp8_supported",
        "is_fp64_supported",
        "is_triton_supported",
    }
    assert names - of_other_lines == info._CAPABILITY_TITLES.keys()


def test_the_page_has_the_value_of_the_variable_of_visible_devices(accel):
    accel.install_card()
    page = accel("info", CARD_VISIBLE_DEVICES="4,5").stdout
    assert "CARD_VISIBLE_DEVICES (now 4,5)" in page


def test_the_page_says_that_the_variable_of_visible_devices_names_none(accel):
    accel.install_card()
    page = accel("info", "card", CARD_VISIBLE_DEVICES="").stdout
    assert "CARD_VISIBLE_DEVICES (now none)" in page


WEDGED = "def device_properties(self, device_index=None): raise RuntimeError('wedged')"


def test_the_page_has_the_rest_beside_what_failed(accel):
    accel.install_card(more=WEDGED)
    done = accel("info")
    assert done.returncode == 1
    assert "\nFailed\n" in done.stdout
    assert "device_properties(1)  RuntimeError: wedged" in done.stdout
    assert "gloo 2.27.3" in done.stdout


def test_the_document_has_the_rest_beside_what_failed(accel):
    accel.install_card(more=WEDGED)
    document = accel.json("info", "card", status=1)
    assert document["devices"][1]["name"] == ""
    assert document["devices"][1]["available_memory"] == 60 * 2**30
    assert document["how"] is None


#: Members of a card that answer with something else than they should.
OF_ANOTHER_KIND = """
    def device_name(self, device_index=None): return {"index": device_index}
    def available_memory(self, device_index=None): return float("nan")
    def device_properties(self, device_index=None):
        return DeviceProperties(name="Card", total_memory=float("inf"))
    def device_count(self): return 100_000
"""


@pytest.fixture
def document_of_lies(accel):
    """The document of a card that answers with something else; a reader of JSON reads it."""
    accel.install_card(more=OF_ANOTHER_KIND)
    return accel.json("info", "card", status=1)


def test_of_very_many_devices_the_document_has_the_first(document_of_lies):
    assert document_of_lies["device_count"] == 100_000
    assert len(document_of_lies["devices"]) == 128


def test_of_very_many_devices_the_page_counts_the_others(accel):
    accel.install_card(more=OF_ANOTHER_KIND)
    page = accel("info", "card").stdout
    assert "100000 devices" in page
    assert "99872 more devices were not examined." in page


def test_an_answer_of_another_kind_is_left_out(document_of_lies):
    assert document_of_lies["devices"][0]["available_memory"] is None


def test_an_answer_of_another_kind_is_a_problem(document_of_lies):
    problems = document_of_lies["problems"]
    assert (
        problems["device_name(0)"]
        == "TypeError: it returned {'index': 0} (dict), expected str"
    )
    assert (
        problems["available_memory(0)"]
        == "TypeError: it returned nan (float), expected int"
    )
    assert (
        problems["device_properties(0)"]
        == "TypeError: total_memory is inf (float), expected int"
    )


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
        "not supported (the device has one queue, and the host's clock measures times)",
    ),
]


@pytest.mark.parametrize(("member", "status", "words"), OTHERWISE)
def test_members_that_are_told_otherwise(accel, member, status, words):
    accel.install_card(more=member)
    done = accel("info", "card")
    assert done.returncode == status, done.stderr
    assert words in done.stdout
    assert ("unknown" in done.stdout) is bool(status)


#: A member as plugins write it: whether Triton is there, and what else it needs.
SUPPORTS_TRITON = (
    "def is_triton_supported(self): return accel_core.is_installed('triton') and {0}"
)
WITHOUT_TRITON = [
    ("pass", False, "the backend card never runs Triton kernels"),
    (SUPPORTS_TRITON.format(True), False, "the package triton is not installed"),
    (SUPPORTS_TRITON.format(False), True, "Card 0 is not supported by Triton"),
    (
        "def device_count(self): return 0\n    " + SUPPORTS_TRITON.format(False),
        True,
        "no device is available",
    ),
    (SUPPORTS_TRITON.format(True), True, None),
]


@pytest.mark.parametrize(("member", "installed", "why"), WITHOUT_TRITON)
def test_why_there_is_no_triton(accel, member, installed, why):
    accel.install_card(more=f"global accel_core; import accel_core\n    {member}")
    if installed:
        accel.world.module("triton", "")
    assert accel.json("info", "card")["why_no_triton"] == why
    line = re.search("Triton +(.*)", accel("info", "card", COLUMNS="120").stdout)
    assert line.group(1).strip() == (f"no: {why}" if why else "yes")


def test_other_warnings_stay_as_they_are(accel):
    accel.install_card()
    accel.world.plugin(
        "warns",
        "import warnings\nwarnings.simplefilter('always')\nwarnings.warn('news')\n",
    )
    assert ": UserWarning: news" in accel("info", process=True).stderr
