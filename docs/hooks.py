"""Build hooks of the site: borrowed pages, links to the repository, inline diagrams."""

from __future__ import annotations

import itertools
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"
OPENAPI = ROOT / "build" / "openapi"  # `make docs` writes it before it builds the site
# Pages whose source is elsewhere in the repository.
BORROWED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/NOTES.md": "benchmarks/notes.md",
    "benchmarks/RESULTS.md": "benchmarks/results.md",
    "benchmarks/results/scaling.svg": "benchmarks/results/scaling.svg",
    "benchmarks/results/serving.svg": "benchmarks/results/serving.svg",
}
SOURCES = {page: source for source, page in BORROWED.items()}
LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEAD_CELL = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
WIDEST = 6  # columns of a table that a phone can show as blocks
CODE = re.compile(r"(```.*?```)", re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Add the files that are elsewhere in the repository."""
    openapi = {path: f"openapi/{path.name}" for path in sorted(OPENAPI.glob("*.json"))}
    borrowed = {ROOT / source: page for source, page in BORROWED.items()}
    for path, page in {**borrowed, **openapi}.items():
        files.append(File.generated(config, page, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page for the site; code is left as it is."""
    if page.file.src_uri == "troubleshooting.md":
        page.meta["search"] = {"boost": 3}  # who searches for a message wants its solution
    if page.file.src_uri == "openapi.md":
        names = (path.name for path in sorted(OPENAPI.glob("*.json")))
        return "\n".join([markdown, *(f"- [{name}](openapi/{name})" for name in names)])
    source = SOURCES.get(page.file.src_uri, f"{DOCS}/{page.file.src_uri}")
    parts = CODE.split(markdown)
    parts[::2] = [LINK.sub(lambda link: _rewrite(link, source, page), text) for text in parts[::2]]
    return "".join(parts)


def on_page_content(html: str, **_: Any) -> str:
    """Name the column in each cell of a narrow table, so that a phone can show rows as blocks."""
    return TABLE.sub(lambda table: _as_blocks(table[0]), html)


def _as_blocks(table: str) -> str:
    names = [re.sub("<.*?>", "", name) for name in HEAD_CELL.findall(table)]
    if len(names) > WIDEST:
        return table
    shown = names[1:] if len(names) > 2 else [""]
    labels = itertools.cycle(["", *(f' data-name="{name}"' if name else "" for name in shown)])
    cells = re.sub("<td", lambda _: f"<td{next(labels)}", table)
    return cells.replace("<table>", "<table data-blocks>", 1)


def _rewrite(link: re.Match[str], source: str, page: Any) -> str:
    """Return a link as the site needs it: a page, an inline diagram, or the text alone.

    A file of the repository that is not part of the site has no address there.
    """
    target = link["target"]
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if link["mark"] and place.startswith(f"{DOCS}/images/") and place.endswith(".svg"):
        return _inline(ROOT / place, link["text"])
    if place == "README.md":
        place = f"{DOCS}/index.md"
    inside = BORROWED.get(place) or place.removeprefix(f"{DOCS}/")
    if place not in BORROWED and not _in_site(place):
        return link["text"]
    here = posixpath.dirname(page.file.src_uri) or "."
    address = posixpath.relpath(inside, here)
    return f"{link['mark']}[{link['text']}]({address}{link['anchor'] or ''})"


def _in_site(place: str) -> bool:
    return place.startswith(f"{DOCS}/") and (ROOT / place).is_file()


def _inline(path: Path, text: str) -> str:
    """Return a diagram as part of the page, where the palette toggle reaches its colours."""
    svg = path.read_text(encoding="utf-8").split("?>")[-1].strip()
    drawing = re.sub(r"\n\s*", "\n", svg)
    return f'<figure class="diagram" role="img" aria-label="{text}">{drawing}</figure>'
