"""Chromium, and what the tests of pages ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from hf_serve.scripts.paths import BUILD

SHOTS = BUILD / "screenshots"
DESKTOP, PHONE = (1000, 900), (390, 844)
OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


@contextmanager
def started_browser(folder: Path) -> Iterator[Chrome]:
    """Run chromium with a folder for its data."""
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in [*OPTIONS, f"--user-data-dir={folder}"]:
        options.add_argument(option)
    browser = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield browser
    finally:
        browser.quit()


def show(browser: Chrome, url: str, size: tuple[int, int], scheme: str) -> None:
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(url)


def shoot(browser: Chrome, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    assert browser.save_screenshot(str(SHOTS / f"{name}.png"))


def value_of(browser: Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


# The lowest contrast of a word with its background, by the formula of WCAG 2.1.
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const card = getComputedStyle(document.querySelector('article')).backgroundColor;
  const light = (...layers) => {
    for (const layer of layers) { canvas.fillStyle = layer; canvas.fillRect(0, 0, 1, 1); }
    const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ratios = [...document.querySelectorAll('article .mark')].map(mark => {
    const style = getComputedStyle(mark);
    const pair = [light(style.color), light(card, style.backgroundColor)].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  });
  return {worst: Math.min(...ratios), paper: getComputedStyle(document.body).backgroundColor};
})()"""
