"""Which modules and which tests take longest: `make durations` writes it to `tests/durations.md`.

The times are the sums of setup, call and teardown, as pytest writes them to its JUnit report.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")
MODULES, TESTS = 80, 100
MODULE = re.compile(r"^\| (?P<seconds>[\d.]+) \| \d+ \| (?P<file>\S+) \|$", re.MULTILINE)


def slowest_modules() -> dict[str, float]:
    """Return the seconds of the modules that the page names; none if there is no page."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    return {row["file"]: float(row["seconds"]) for row in MODULE.finditer(text)}


def main(report: Path) -> None:
    """Write the page of a JUnit report."""
    seconds, cases = defaultdict[str, float](float), Counter[str]()
    tests = dict[str, float]()
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest's own report
        module = _module(case.attrib["classname"])
        seconds[module] += float(case.attrib["time"])
        cases[module] += 1
        name = case.attrib["name"].partition("@")[0]  # pytest-xdist appends the group
        tests[f"{module}::{name}"] = float(case.attrib["time"])
    PAGE.write_text(_page(seconds, cases, tests), encoding="utf-8")


def _module(classname: str) -> str:
    """Return the file of a test: `tests/e2e/test_x.py` for `tests.e2e.test_x.TestClass`."""
    parts = [part for part in classname.split(".") if not part.startswith("Test")]
    return f"{'/'.join(parts)}.py"


def _page(
    seconds: Mapping[str, float], cases: Mapping[str, int], tests: Mapping[str, float]
) -> str:
    return "\n".join(
        [
            "# The slowest tests",
            "",
            f"`make durations` writes this page. {len(tests):,} tests take"
            f" {sum(tests.values()):.0f} s, added up over the processes of pytest.",
            "",
            "| seconds | cases | module |",
            "|---:|---:|---|",
            *(f"| {each:.1f} | {cases[name]} | {name} |" for name, each in _most(seconds, MODULES)),
            "",
            "| seconds | test |",
            "|---:|---|",
            *(f"| {each:.1f} | {_cell(name)} |" for name, each in _most(tests, TESTS)),
            "",
        ]
    )


def _most(seconds: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])[:count]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
