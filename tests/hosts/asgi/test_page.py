"""The page at `/` in a real browser: a person tries, explains and compares models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from hf_serve.hosts.asgi.access import ApiKeys
from hf_serve.hosts.asgi.server import ServerSettings, create_application
from tests.browsing import CONTRAST, DESKTOP, PHONE, shoot, show, started_browser, value_of
from tests.handlers.generation.test_chat import TEMPLATE
from tests.hosts.asgi.stand_in import BROKEN, SECONDS, ServedBackend, running
from tests.images import FILES
from tests.serving import Served

pytestmark = pytest.mark.server

CLASSIFIER, OTHER, WRITER, EYE = "classifier", "other", "writer", "eye"
KEY = "a-key-of-this-test"
HOSTILE = "\"><script>document.title='owned'</script><img src=x onerror=alert(1)> & <b>bold</b>"


class Page:
    """The page, as a person uses it."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, model: str = "", size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        self.browser.get("about:blank")
        show(self.browser, f"{self.url}/#{model}", size, scheme)
        if model:
            self.wait("#request:not([hidden])")

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, selector: str) -> WebElement:
        waiting = WebDriverWait(self.browser, SECONDS)
        return waiting.until(lambda browser: browser.find_element(By.CSS_SELECTOR, selector))

    def write(self, field: str, text: str) -> None:
        control = self.find(f"#field-{field}")
        control.clear()
        control.send_keys(text)

    def press(self, button: str) -> str:
        """Press a button, and return the text of the results."""
        self.find(f"#{button}").click()
        self.wait("#stop[hidden]")
        return self.find("#results").text

    def errors(self) -> list[str]:
        """Return what the browser reports: errors of the script, and of the policy."""
        return [entry["message"] for entry in self.browser.get_log("browser")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with started_browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def backend(served: Callable[..., Served]) -> Iterator[ServedBackend]:
    models = {
        CLASSIFIER: served("sequence_classification"),
        OTHER: served("sequence_classification", family="Roberta"),
        WRITER: served("text_generation"),
        EYE: served("image_classification"),
    }
    with pytest.MonkeyPatch.context() as patch:
        tokenizer = models[WRITER].engine.task.checkpoint.tokenizer
        patch.setattr(tokenizer, "chat_template", TEMPLATE)
        yield ServedBackend(models, [BROKEN])


@pytest.fixture(scope="module")
def url(backend: ServedBackend) -> Iterator[str]:
    settings = ServerSettings("", 1, 1, 1 << 24, ApiKeys())
    with running(create_application(backend, settings), "on") as url:
        yield url


@pytest.fixture
def page(browser: Chrome, url: str) -> Iterator[Page]:
    page = Page(browser, url)
    page.errors()  # those of the test before
    yield page
    assert page.errors() == []


def test_a_text_is_classified_with_its_labels_and_its_request_as_code(page: Page) -> None:
    page.open(CLASSIFIER)
    assert "up to" in page.find("#takes").text
    page.write("text", "A fine film.")
    found = page.press("run")
    assert found.startswith("Answer")
    assert {"POSITIVE", "NEGATIVE"} <= set(found.split())
    code = page.find("#snippet").text
    assert f"curl '{page.url}/predictions/{CLASSIFIER}'" in code
    assert '"inputs":"A fine film."' in code
    page.all("#code [role=tab]")[1].click()
    assert "requests.post" in page.find("#snippet").text


def test_the_words_of_a_text_have_the_colours_of_their_importances(page: Page) -> None:
    page.open(CLASSIFIER)
    page.write("text", "A fine film.")
    page.press("explain")
    assert [each.text for each in page.all(".marked .mark")] == ["A", "fine", "film", "."]
    values = [each.get_attribute("title") or "" for each in page.all(".marked .mark")]
    assert all(re.fullmatch(r"[+−]\d\.\d{3}", value) for value in values)
    assert page.find("#results").text.count("Strongest:") == 1


def test_two_models_are_compared_line_by_line(page: Page) -> None:
    page.open(CLASSIFIER)
    page.write("text", f"A fine film.{Keys.ENTER}A dull film.")
    assert [each.text for each in page.all("#other option")] == [OTHER]
    found = page.press("compare")
    assert "2 inputs · 5 runs each" in found
    assert "agreement." in page.find("#agreement").text
    assert len(page.all("#answers tbody tr")) == 2
    assert "pretrained, float32" in found


def test_a_generated_text_says_which_words_made_each_token(
    page: Page, backend: ServedBackend
) -> None:
    page.open(WRITER)
    page.press("run")
    assert b'"stream":true' in backend.requests[-1].body
    page.press("explain")
    page.wait(".tokens button")
    assert page.find("#results h3[aria-live]").text == "What made the whole text"
    first, second = page.all(".tokens button")[:2]
    first.send_keys(Keys.ARROW_RIGHT)  # without a mouse
    assert page.browser.switch_to.active_element == second
    assert second.get_attribute("aria-pressed") == "true"
    assert page.find("#results h3[aria-live]").text.startswith("What made “")
    assert [each.text for each in page.all(".marked .mark")] == ["Once", "upon", "a", "time"]


def test_a_chat_is_streamed_and_goes_on(page: Page) -> None:
    page.open(WRITER)
    page.all("#ways button")[-1].click()
    for count, message in enumerate(("Hello", "And then?"), 1):
        page.write("message", message + Keys.ENTER)
        page.wait(f"#chat li:nth-child({2 * count}).assistant")
        page.wait("#stop[hidden]")
    assert [each.text for each in page.all("#chat .user")] == ["Hello", "And then?"]
    page.all("#code [role=tab]")[-1].click()
    assert "client.chat.completions.create" in page.find("#snippet").text


def test_a_picture_has_a_heat_map_over_it(page: Page, tmp_path: Path) -> None:
    page.open(EYE)
    picture = tmp_path / "picture.png"
    picture.write_bytes(FILES[0])
    page.find("#field-image").send_keys(str(picture))
    page.wait("#fields img[src^=blob]")
    assert "%" in page.press("run")
    page.press("explain")
    image, heat = page.all(".layers img")
    assert image.rect == heat.rect
    assert len(page.all(".patches i")) == 14 * 14
    assert f"image=@{picture.name}" in page.find("#snippet").text


def test_what_is_wrong_is_said(page: Page) -> None:
    page.open(CLASSIFIER)
    page.find("#parameters > summary").click()
    page.find("#parameter-top_k").clear()
    page.find("#parameter-top_k").send_keys("0")
    page.browser.execute_script("document.getElementById('request').noValidate = true")
    assert "Status 400. parameters: top_k is 0" in page.press("run")
    page.errors()  # the browser reports each status
    page.open()
    page.wait("#models li:last-child button").click()
    assert "handler.mode is wrong" in page.find("#takes").text


def test_hostile_text_is_shown_and_not_executed(page: Page) -> None:
    page.open(CLASSIFIER)
    page.write("text", HOSTILE)
    page.press("run")
    page.press("explain")
    assert page.browser.title == "Models"
    assert value_of(page.browser, "document.querySelectorAll('script').length") == 1
    assert value_of(page.browser, "document.querySelectorAll('main b, main img').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_words_stay_readable(page: Page, scheme: str) -> None:
    page.open(CLASSIFIER, PHONE, scheme)
    page.write("text", "A fine film.")
    page.press("explain")
    shoot(page.browser, f"page-{scheme}")
    assert value_of(page.browser, CONTRAST.replace("article", "#results"))["worst"] >= 4.5
    page.press("compare")
    assert value_of(page.browser, "document.documentElement.scrollWidth") <= PHONE[0]


def test_the_load_of_the_server_is_shown(page: Page) -> None:
    page.open(CLASSIFIER)
    page.press("run")
    WebDriverWait(page.browser, SECONDS).until(lambda _: "ms" in page.find("#live-p50").text)
    assert page.find("#live-open").text == "0"
    assert page.find("#live-memory").text.endswith("B")


def test_a_server_with_keys_asks_for_one(browser: Chrome, backend: ServedBackend) -> None:
    settings = ServerSettings("", 1, 1, 1 << 24, ApiKeys([KEY]))
    with running(create_application(backend, settings), "on") as url:
        page = Page(browser, url)
        page.open()
        page.wait("#key-dialog[open]")
        page.find("#key").send_keys(KEY + Keys.ENTER)
        page.wait("#request:not([hidden])")
        page.press("run")
        assert KEY not in page.find("#snippet").text
        assert "$API_KEY" in page.find("#snippet").text
