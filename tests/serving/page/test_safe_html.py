"""HTML that runs nothing before its translation runs nothing afterwards, in a real Chromium."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Dialog

from saccade.bench.html.chance import ChanceTranslator
from saccade.serving.models import LanguagePair, ServedRun
from servers import serving

HARMLESS = [
    "<p>The cat.</p><!-- x -- > <img src=x onerror=alert(1)> -->",  # as nh3 lets it pass
    # and as bleach returns it:
    """<p>The <b>black</b> cats <b title='x id="' class="' onmouseover=alert(1) z">do not</b> sleep.</p>""",
    "<td><b x='<img src=x onerror=alert(1)> The cat. --> It sleeps.",
    "<form><math><mtext></form><form><mglyph><style></math>The <img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript>The cat<code>sleeps</code>.'></p>",
    "&lt;img src=x onerror=alert(1)&gt; The <i>cat</i>.",
]


def fired(browser: Browser, html: str) -> list[str]:
    """What a page with this HTML says in alerts, once every element was pointed at."""
    page, said = browser.new_page(), list[str]()

    def hear(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", hear)
    page.goto(f"data:text/html,<!doctype html><body>{quote(html)}")
    point = "all => all.forEach((one) => one.dispatchEvent(new MouseEvent('mouseover', { bubbles: true })))"
    page.eval_on_selector_all("*", point)
    page.wait_for_timeout(50)
    page.close()
    return said


@pytest.fixture(scope="module")
def outputs() -> list[str]:
    run = ServedRun("chance", "translate", ChanceTranslator(), LanguagePair("en", "fr"))
    with serving([run]) as site:
        found = site.post("/translate", q=HARMLESS, source="en", target="fr", format="html")
        assert found.status_code == 200
        return list(found.json()["translatedText"])


def test_nothing_runs_that_did_not_run_before(browser: Browser, outputs: list[str]) -> None:
    assert fired(browser, "<img src=x onerror=alert(1)>") == ["1"]
    for source, output in zip(HARMLESS, outputs, strict=True):
        assert fired(browser, source) == [], source
        assert fired(browser, output) == [], output
