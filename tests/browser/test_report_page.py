"""The report in a browser: from the file alone, in light and dark, on a desk and on a phone, by pointer and by key."""

from __future__ import annotations

import json

import pytest

from penstock.jobs import RunRecorder
from penstock.report.comparison import render_comparison

PARTS = ["headline", "training", "time", "workflow", "embeddings", "data", "configuration", "machine"]


def brightness(page, selector: str) -> float:
    """How light the background of an element is, from 0 to 255."""
    colour = page.eval_on_selector(selector, "e => getComputedStyle(e).backgroundColor")
    numbers = [float(n) for n in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(numbers) / 3


def test_the_file_opens_by_itself(watch, recorded: RunRecorder) -> None:
    seen = watch()
    seen.page.goto(recorded.path.as_uri())
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [recorded.path.as_uri()]
    for part in PARTS:
        assert seen.page.locator(f"section#{part}").is_visible()
    assert seen.page.locator("h1").inner_text() == "MLP"
    assert seen.page.locator("#state").inner_text() == "finished"
    assert seen.page.locator("svg.lines").count() == 6
    assert seen.page.locator(".lane").count() == 5  # predictions, the run, the loop, the thread, the loader
    assert seen.page.locator(".graph.across").is_visible() and not seen.page.locator(".graph.down").is_visible()


def test_light_dark_and_the_button(watch, recorded: RunRecorder) -> None:
    dark, light = watch(scheme="dark").page, watch(scheme="light").page
    for page in (dark, light):
        page.goto(recorded.path.as_uri())
    assert brightness(dark, "body") < 60 < 200 < brightness(light, "body")
    button = light.locator("#theme")
    assert button.inner_text() == "Theme: auto"
    button.click()
    assert button.inner_text() == "Theme: light" and brightness(light, "body") > 200
    button.click()
    assert button.inner_text() == "Theme: dark" and brightness(light, "body") < 60
    for _ in range(40):  # a browser takes its time to keep what a page has stored
        light.reload()
        if button.inner_text() == "Theme: dark":
            break
        light.wait_for_timeout(250)
    assert button.inner_text() == "Theme: dark" and brightness(light, "body") < 60


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(watch, recorded: RunRecorder, scheme: str) -> None:
    """WCAG's contrast of 4.5 to 1, for the kinds of text there are."""
    page = watch(scheme=scheme).page
    page.goto(recorded.path.as_uri())
    measure = """selector => {
      const element = document.querySelector(selector);
      const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
      const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      let behind = element, back;
      do { back = parse(getComputedStyle(behind).backgroundColor); behind = behind.parentElement; }
      while (behind && back.length === 4 && back[3] === 0);
      const style = getComputedStyle(element);
      const ink = parse(element.closest('svg') ? style.fill : style.color);
      const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    }"""
    for selector in ("h1", ".subtitle", ".card dt", ".card .value", ".more", ".state", ".callout", ".callout .kind",
                     ".about", "thead th", "tbody th", ".range", ".hot", "nav a", "#theme", ".legend", ".lines text",
                     "footer", "summary"):  # fmt: skip
        assert page.evaluate(measure, selector) >= 4.5, selector


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (375, "light"), (768, "light"), (1280, "dark")])
def test_nothing_is_wider_than_the_screen(
    watch, overflowing, recorded: RunRecorder, hostile: RunRecorder, width: int, scheme: str
) -> None:
    for recorder in (recorded, hostile):
        page = watch(width=width, height=812, scheme=scheme, device_scale_factor=2, has_touch=True).page
        page.goto(recorder.path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
        assert overflowing(page) == []


def test_compared_runs_are_whole_on_a_phone(watch, recorded: RunRecorder, tmp_path) -> None:
    report = json.loads((recorded.directory / "report.json").read_text())
    others = {name: {**report, "configuration": {"settings": {"seed": name}}} for name in ("first", "second", "third")}
    (tmp_path / "compare.html").write_text(render_comparison(others))
    page = watch(width=375, height=812).page
    page.goto((tmp_path / "compare.html").as_uri())
    assert page.locator(".compared td").count() >= 9
    cells = page.locator(".compared td, .compared th[scope=row], .differing td").all()
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 375 for cell in cells if (box := cell.bounding_box()))


def test_a_phone_draws_the_workflow_downwards(watch, recorded: RunRecorder) -> None:
    page = watch(width=375, height=812).page
    page.goto(recorded.path.as_uri())
    assert page.locator(".graph.down").is_visible() and not page.locator(".graph.across").is_visible()


def test_pointer_and_keys_show_values(watch, recorded: RunRecorder) -> None:
    seen = watch(height=1400, reduced_motion="reduce")  # so high that nothing scrolls, which would hide the tip
    page = seen.page
    page.goto(recorded.path.as_uri())
    page.locator("svg.lines").first.hover()
    tip = page.locator("#tip")
    assert tip.is_visible() and "training rows: 0." in tip.inner_text() and tip.inner_text().startswith("step ")
    page.mouse.move(5, 400)
    assert not tip.is_visible()
    page.locator("svg.lines").nth(1).focus()
    page.keyboard.press("ArrowRight")
    assert "step 60" in tip.inner_text() and "held-out rows: 0." in tip.inner_text()
    page.keyboard.press("ArrowLeft")
    assert "step 55" in tip.inner_text()
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    bars = page.locator("svg.bars").first
    bars.scroll_into_view_if_needed()
    bars.hover(position={"x": 5, "y": 15})
    assert ": " in tip.inner_text()
    assert seen.complaints == []


def test_hostile_names_are_only_text(watch, hostile: RunRecorder) -> None:
    seen = watch()
    dialogs: list[str] = []
    seen.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    seen.page.goto(hostile.path.as_uri())
    assert seen.page.locator("h1").inner_text() == "</script><img src=x onerror=alert(1)>"
    for bars in seen.page.locator("svg.bars").all()[:3]:
        bars.hover()
    assert dialogs == [] and seen.page.locator("img").count() == 0
    assert [url for url in seen.requests if not url.startswith(("data:", "file:"))] == []
    assert seen.complaints == []


def test_it_can_be_printed(watch, recorded: RunRecorder) -> None:
    page = watch(scheme="dark").page
    page.goto(recorded.path.as_uri())
    page.emulate_media(media="print")
    ink = page.eval_on_selector("h1", "e => getComputedStyle(e).color")
    assert ink == "rgb(22, 32, 43)" and brightness(page, "body") == 255  # dark on white, whatever the screen shows
    assert not page.locator("header").is_visible()
    printed = page.pdf()
    assert printed.startswith(b"%PDF") and len(printed) > 10_000


def test_links_beyond_the_edge_are_hinted_at(watch, recorded: RunRecorder) -> None:
    from playwright.sync_api import expect

    page = watch(width=375, height=812, reduced_motion="reduce").page
    page.goto(recorded.path.as_uri())
    links, onward = page.locator("header nav"), page.locator(".onward")
    assert "behind" in links.get_attribute("class") and onward.is_visible()
    assert "gradient" in links.evaluate("e => getComputedStyle(e).maskImage")
    links.evaluate("e => e.scrollTo({left: e.scrollWidth, behavior: 'instant'})")
    expect(links).to_have_class("before")
    onward.click()
    expect(links).to_have_class("behind")
    wide = watch().page
    wide.goto(recorded.path.as_uri())
    assert not wide.locator(".onward").is_visible()
