"""The page of `accel doctor --html` in a real browser: no network, phone and desktop, light and dark."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SIZES = {"phone": {"width": 390, "height": 844}, "desktop": {"width": 1280, "height": 900}}

playwright = pytest.importorskip("playwright.sync_api", reason="`./dev site` has it")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt install chromium")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A visit with everything that a page can show, and words of strangers who try to be markup."""
    sys.path.insert(0, str(ROOT / "src"))  # the session does not install the project
    try:
        from accel_core.doctor.html import page
        from accel_core.doctor.outgoing import Outgoing, Ranked
        from accel_core.doctor.records import Examined, Finding, Level, Report
    finally:
        sys.path.remove(str(ROOT / "src"))
    long = "<env>/torch_npu/lib/" + "a_folder_without_a_space_or_a_hyphen" * 3 + "/libtorch_npu.so"
    findings = (
        Finding(
            Level.ERROR,
            "candidates.broken",
            "broken: torch_npu failed: ImportError: libhccl.so: cannot open shared object file",
            "source /usr/local/Ascend/ascend-toolkit/set_env.sh",
            "npu",
            {"distribution": "accel-npu 0.1.0", "cause": f"OSError: {long}"},
        ),
        Finding(Level.WARNING, "candidates.settings", "<img src=http://x/y> <script>alert(1)</script>"),
        *(Finding(Level.OK, "candidates.usable", "usable", about=name) for name in ("cuda", "cpu")),
    )
    topics = (
        Examined("candidates", "Backends", findings, 1830.4),
        Examined("machine", "Machine", (), 12.1, "OSError: it could not be read"),
        Examined("visible-devices", "Visible devices", findings[2:], 0.4),
    )
    ranking = (
        Ranked("npu", "accel-npu 0.1.0", 700, "broken", True, False, False, 1200.0),
        Ranked("mlu", "accel-mlu 0.1.0", 300, "not installed", False, False, False, 0.0),
        Ranked("cuda", "accel-cuda 0.1.0", 200, "usable", False, True, True, 310.0),
        Ranked("cpu", "accel-core 0.1.0", 0, "usable", False, True, False, 0.2),
    )
    report = Report("cuda is chosen, and 2 things are wrong, first of all: npu: broken.", topics, 1901.0)
    shown = Outgoing(
        report,
        ranking,
        {"accel-core": "0.1.0", "torch": "2.13.0+cu128", "platform": "Linux 6.8.0"},
        {"CUDA_VISIBLE_DEVICES": "0,1", "LD_LIBRARY_PATH": "set"},
    )
    file = tmp_path_factory.mktemp("doctor") / "visit.html"
    file.write_text(page(shown), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


#: Of each text on the page: its colour and that of the nearest background behind it, and its size.
LOOK = """() => [...document.querySelectorAll('h1,h2,h3,p,li,dt,dd,summary,td,th,text,span,footer,strong')]
  .filter(e => e.textContent.trim() && e.getClientRects().length).map(e => {
    let at = e, back = 'rgba(0, 0, 0, 0)';
    for (; at && back === 'rgba(0, 0, 0, 0)'; at = at.parentElement)
      back = getComputedStyle(at).backgroundColor;
    const style = getComputedStyle(e), svg = e.ownerSVGElement;
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    return [e.textContent.trim().slice(0, 40), svg ? style.fill : style.color, back,
            parseFloat(style.fontSize) * scale];
  })"""


def luminance(colour: str) -> float:
    """As WCAG 2.1 defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_on_phone_and_desktop(
    browser: Any, document: Path, scheme: str, tmp_path: Path
) -> None:
    """And asks nobody for anything. Pictures are left where `SITE_SCREENSHOTS` says, to be looked at."""
    folder = Path(os.environ.get("SITE_SCREENSHOTS", tmp_path))
    for name, size in SIZES.items():
        faults: list[str] = []
        context = browser.new_context(color_scheme=scheme, viewport=size)
        opened = context.new_page()
        opened.on("pageerror", lambda error, found=faults: found.append(str(error)))
        opened.on("console", lambda told, found=faults: found.append(told.text))
        opened.on(
            "request", lambda asked, found=faults: asked.url.startswith("http") and found.append(asked.url)
        )
        opened.goto(document.as_uri())
        opened.screenshot(path=str(folder / f"doctor-{name}-{scheme}.png"), full_page=True)
        for summary in opened.query_selector_all("summary"):
            summary.click()
        assert opened.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        looks = opened.evaluate(LOOK)
        assert len(looks) > 60
        assert [look for look in looks if contrast(look[1], look[2]) < 4.5] == []
        assert [look for look in looks if look[3] < 10] == []
        assert (luminance(looks[0][2]) < 0.1) is (scheme == "dark")
        assert faults == []
        context.close()


def test_it_can_be_read_without_seeing_it(browser: Any, document: Path) -> None:
    opened = browser.new_page()
    opened.goto(document.as_uri())
    levels = opened.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(e => e.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1
    assert {"H2", "H3"} <= set(levels)
    # Pictures have a name and a text; signs have words; the ranking is a table too.
    for picture in opened.query_selector_all("svg"):
        for name in picture.get_attribute("aria-labelledby").split():
            assert opened.inner_html(f"#{name}")
    assert "npu: broken" in opened.inner_html("#ranking-picture-told")
    signs = opened.query_selector_all("span[role=img]")
    assert {sign.get_attribute("aria-label") for sign in signs} == {
        "as it should be", "not as it should be", "broken",
    }  # fmt: skip
    assert len(opened.query_selector_all("tbody tr")) == 4
    # What strangers said is text.
    assert opened.query_selector("img, script") is None
    assert "<script>alert(1)</script>" in opened.inner_text("main")
    opened.close()
