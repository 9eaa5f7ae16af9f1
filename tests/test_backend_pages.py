"""tools/backend_pages.py: the pages of backends, from declarations and notes."""

from accel_tests.tools import load

from accel_core import Backend, Hardware, ResourceRequest

TOOL = load("backend_pages")

NOTES = """# Acme GPUs (`acme`)

Acme's driver.

## Tested on

Simulated device.

## Install

## Train

## Limits

## Environment variables

## Detection

## Import side effects
"""


def declared(**fields):
    """A shipped backend of accel-core, so that its folder is known."""
    backend = Backend(
        name="acme",
        priority=1,
        device_type="acme",
        vendor_import="torch_acme",
        accelerator="accel_acme:Acme",
        **fields,
    )
    return TOOL.Shipped(backend, "accel-core")


def notes(tmp_path, text=NOTES):
    file = tmp_path / "acme.md"
    file.write_text(text, "utf-8")
    return TOOL.read_notes(file)


def headings(page):
    return [line for line in page.splitlines() if line.startswith("## ")]


def test_a_page_begins_with_the_hardware_and_ends_with_the_declaration(tmp_path):
    page = TOOL.page("acme", [declared()], notes(tmp_path), "print()")
    assert headings(page) == [
        "## Tested on",
        "## Install",
        "## Train",
        "## Limits",
        "## Environment variables",
        "## Detection",
        "## Import side effects",
        "## Declaration",
    ]
    assert "```python\nprint()\n```" in page


def test_notes_without_a_section_are_rejected(tmp_path):
    text = NOTES.replace("## Limits\n", "").replace("# Acme GPUs (`acme`)\n", "")
    assert notes(tmp_path, text).missing == ["# a title", "## Limits"]


def test_the_summary_of_the_tests_is_the_first_sentence(tmp_path):
    text = NOTES.replace("Simulated device.", "With acme 0.2.0\nsimulated. Not run.")
    summary = notes(tmp_path, text).tested_on(declared().backend)
    assert summary == "With acme 0.2.0 simulated"


def test_each_kind_of_hardware_has_a_summary_of_its_tests(tmp_path):
    both = "- Acme GPU: An Acme 1.\n- Emca GPU: Simulated device.\n"
    found = notes(tmp_path, NOTES.replace("Simulated device.\n", both))
    emca = declared(hardware=Hardware(name="Emca GPU")).backend
    assert found.tested_on(emca) == "Simulated device"


def test_a_second_declaration_lists_only_what_differs():
    request = ResourceRequest(docker="--gpus all")
    second = declared(url="https://emca.example")
    text = TOOL.declaration([declared(request=request), second])
    differences = text.rpartition("\n\n")[2].splitlines()
    assert differences == ["- request: —", "- docs: <https://emca.example>"]
