"""The built site in a real browser, opened from its folder: headless Chromium, without a network."""

import os
import shutil
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "site"
CHROMIUM = (
    shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
PHONE = {"width": 390, "height": 844}
#: What somebody looks for, and a page that must be among the first five found.
SEARCHES = {
    "get_accelerator": "reference/functions", "DS_ACCELERATOR": "reference/command",
    "memory_allocated": "reference/accelerator", "torch.cuda": "howto/from-torch-cuda",
    "container": "howto/containers", "not found": "howto/not-found", "torchrun": "multinode",
    "priority": "backends", "Lightning": "howto/trainers", "hookimpl": "writing-a-plugin",
}  # fmt: skip

playwright = pytest.importorskip("playwright.sync_api", reason="`./dev site` has it")
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium here: apt install chromium"
    ),
    pytest.mark.skipif(
        not (SITE / "index.html").is_file(), reason="site/ is not built: ./dev docs"
    ),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser):
    made = browser.new_page()
    yield made
    made.close()


def pages():
    return sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)


def test_every_page_renders_without_an_error_and_without_a_network(page):
    """On a phone too: what is wider than the screen, as tables and code, scrolls by itself."""
    faults = []
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on(
        "console",
        lambda told: told.type == "error" and faults.append(f"{page.url}: {told.text}"),
    )
    page.on(
        "request",
        lambda got: (
            got.url.startswith("http") and faults.append(f"{page.url}: {got.url}")
        ),
    )
    for path in pages():
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(path.as_uri())
        page.set_viewport_size(PHONE)
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if wide > 0:
            faults.append(f"{path.relative_to(SITE)}: {wide} pixels wider than a phone")
    assert len(pages()) > 30
    assert faults == []


@pytest.mark.parametrize(("words", "wanted"), SEARCHES.items())
def test_search_finds_it(page, words: str, wanted: str):
    page.goto(f"{(SITE / 'search.html').as_uri()}?q={words}")
    page.wait_for_selector("ul.search li a")
    page.wait_for_function(
        "document.querySelector('p.search-summary')?.innerText.includes('found')"
    )
    found = [
        link.get_attribute("href")
        for link in page.query_selector_all("ul.search > li > a")
    ]
    assert any(wanted in link for link in found[:5]), found[:8]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(browser, scheme, tmp_path):
    """Pictures of both are left where `SITE_SCREENSHOTS` says, to be looked at."""
    folder = Path(os.environ.get("SITE_SCREENSHOTS", tmp_path))
    dark = scheme == "dark"
    for size, name in (({"width": 1280, "height": 900}, "desktop"), (PHONE, "phone")):
        context = browser.new_context(color_scheme=scheme, viewport=size)
        opened = context.new_page()
        for path in ("index", "howto/not-found", "reference/accelerator"):
            opened.goto((SITE / f"{path}.html").as_uri())
            opened.screenshot(
                path=str(folder / f"{name}-{scheme}-{path.replace('/', '-')}.png")
            )
        colour = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        red = int(colour.partition("(")[2].split(",")[0])
        assert (red < 80) is dark, colour
        context.close()
