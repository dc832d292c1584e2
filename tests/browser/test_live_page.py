"""The live page in a browser while a real training runs."""

from __future__ import annotations

import threading
import time

from penstock.jobs import RunRecorder
from penstock.report.live import LiveView


def test_the_page_grows_with_the_run(watch, train_some, tmp_path) -> None:
    from playwright.sync_api import expect

    recorder, failures = RunRecorder(tmp_path), []
    go_on = threading.Event()

    def slowly(record) -> None:
        if record.step == 30:
            go_on.wait(600)  # until the browser has seen the first half
        time.sleep(0.02)

    def work() -> None:
        try:
            train_some(recorder, tmp_path, callbacks=(slowly,))
        except BaseException as error:
            failures.append(error)

    seen = watch()
    page = seen.page
    with LiveView(recorder) as view:
        page.goto(view.url)
        assert page.locator("#state").inner_text() == "running"
        loaded = page.evaluate("performance.timeOrigin")
        worker = threading.Thread(target=work)
        worker.start()
        expect(page.locator("svg.lines")).to_have_count(3)
        expect(page.locator(".progress")).to_contain_text("step 30 of 60")
        before = page.locator("svg.lines").first.get_attribute("data-series")
        page.locator("#data-raw summary").first.click()  # what the reader folds stays folded
        assert not page.locator("#data-raw").evaluate("fold => fold.open")
        go_on.set()
        expect(page.locator("#state")).to_have_text("finished")
        after = page.locator("svg.lines").first.get_attribute("data-series")
        assert len(after) > len(before)
        assert not page.locator("#data-raw").evaluate("fold => fold.open")
        assert page.evaluate("performance.timeOrigin") == loaded  # never reloaded
        assert str(recorder.path) in page.locator("#live-note").inner_text()
        worker.join()
    assert failures == [] and seen.complaints == []
    assert all(url.startswith((view.url, "data:")) for url in seen.requests)
    final = watch().page
    final.goto(recorder.path.as_uri())
    assert final.locator("svg.lines").first.get_attribute("data-series") == after


def test_a_server_that_is_gone_is_noticed(watch, tmp_path) -> None:
    from playwright.sync_api import expect

    recorder = RunRecorder(tmp_path)
    page = watch().page
    with LiveView(recorder) as view:
        page.goto(view.url)
        expect(page.locator("#live-note")).to_have_text("· live")
    expect(page.locator("#live-note")).to_contain_text("reconnecting")
