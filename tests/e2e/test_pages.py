"""Explanations in a real browser: light and dark, on a phone, and with hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.scripts.paths import ARTIFACTS
from hf_serve.scripts.serving.server import Server
from tests.browsing import CONTRAST, DESKTOP, PHONE, shoot, show, value_of
from tests.e2e.asking import ask_json
from tests.e2e.served import explained_modes
from tests.samples import INPUTS
from tests.serving import Served

HOSTILE = "\"><script>document.title='owned'</script><img src=x onerror=alert(1)> & <b>bold</b> "


def page_of(server: Server, mode: str, inputs: Any, target: Path) -> str:
    body = {"inputs": inputs, "parameters": {"method": "feature_ablation"}}  # the quickest
    answer = ask_json(server, f"/explanations/{mode}", body, Accept="text/html")
    assert answer.headers["content-type"] == "text/html; charset=utf-8", answer.text
    target.write_bytes(answer.content)
    return target.as_uri()


@pytest.mark.parametrize("mode", explained_modes())
def test_each_page_fits_a_desktop_and_a_phone(
    server: Server, browser: Chrome, tmp_path: Path, mode: str
) -> None:
    sample = json.loads((ARTIFACTS / mode / "sample.json").read_text("utf-8"))
    url = page_of(server, mode, sample["inputs"], tmp_path / "page.html")
    for name, size in {"desktop": DESKTOP, "phone": PHONE}.items():
        show(browser, url, size, "light")
        shoot(browser, f"{mode}-{name}")
        assert value_of(browser, "document.documentElement.scrollWidth") <= size[0]
        assert value_of(browser, "document.querySelectorAll('.mark.for').length") > 1


def test_words_stay_readable_in_light_and_dark(
    server: Server, browser: Chrome, tmp_path: Path
) -> None:
    sample = json.loads((ARTIFACTS / "sequence_classification" / "sample.json").read_text("utf-8"))
    url = page_of(server, "sequence_classification", sample["inputs"], tmp_path / "page.html")
    papers = []
    for scheme in ("light", "dark"):
        show(browser, url, DESKTOP, scheme)
        shoot(browser, f"sequence_classification-{scheme}")
        colours = value_of(browser, CONTRAST)
        papers.append(colours["paper"])
        assert colours["worst"] >= 4.5, f"{scheme}: contrast {colours['worst']}"
    assert papers[0] != papers[1]


def test_hostile_text_is_not_executed(server: Server, browser: Chrome, tmp_path: Path) -> None:
    inputs = {"question": f"Who {HOSTILE}?", "context": f"Nina {HOSTILE} sings."}
    show(browser, page_of(server, "question_answering", inputs, tmp_path / "p.html"), PHONE, "dark")
    shoot(browser, "hostile")
    assert browser.title == "Explanation"
    for tag in ("script", "img", "b"):
        assert value_of(browser, f"document.querySelectorAll('{tag}').length") == 0
    assert value_of(browser, "document.documentElement.scrollWidth") <= PHONE[0]


@pytest.mark.parametrize("mode", ["image_classification", "object_detection"])
def test_the_heat_map_of_an_image_lies_over_it_and_can_be_switched(
    served: Callable[..., Served], browser: Chrome, tmp_path: Path, mode: str
) -> None:
    body = {"inputs": INPUTS[mode][:2], "parameters": {"method": "occlusion", "resolution": 8}}
    http_request = HttpRequest({"body": body}, {"explain": "True", "Accept": "text/html"})
    (answer,) = served(mode).dispatcher.dispatch([http_request], Meter())
    page = tmp_path / "page.html"
    page.write_bytes(answer.body)
    for name, size in {"desktop": DESKTOP, "phone": PHONE}.items():
        show(browser, page.as_uri(), size, "light")
        shoot(browser, f"{mode}-{name}")
        assert value_of(browser, "document.documentElement.scrollWidth") <= size[0]
        assert value_of(browser, "[...document.images].every(each => each.naturalWidth == 32)")
        read, heat = browser.find_elements("css selector", "img")[:2]
        assert read.rect == heat.rect
        assert read.rect["width"] == read.rect["height"] > 250
        assert heat.value_of_css_property("opacity") == "0.6"
    for strength, opacity in {"none": "0", "full": "1"}.items():
        browser.find_element("css selector", f"input.{strength}").click()
        heats = browser.find_elements("css selector", "img.heat")
        # Each image has a switch of its own.
        assert [each.value_of_css_property("opacity") for each in heats] == [opacity, "0.6"]
    assert value_of(browser, "document.querySelectorAll('.patches i[title]').length") == 2 * 64
