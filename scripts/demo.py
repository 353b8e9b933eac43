"""Prepare four small models, serve them, ask each one, show what it answers, and stop."""

from __future__ import annotations

import json
from typing import Any

import httpx
import typer
from rich import box
from rich.console import Console, Group
from rich.pretty import Pretty
from rich.table import Table

from scripts.kit.archive import pack
from scripts.kit.command import plain_errors
from scripts.kit.demo_models import ensure
from scripts.kit.demo_models.lessons import modes
from scripts.kit.places import ARTIFACTS, BUILD, MODEL_CONFIGS, MODEL_STORE
from scripts.kit.server import Server
from scripts.kit.torchserve import TorchServe

EXPLAINED = "sequence_classification"
PAGES = BUILD / "explanations"

console = Console(highlight=False)


def main() -> None:
    """Run the whole road once on this machine; ends with 1 when any step failed."""
    with plain_errors():
        ensure(modes())
        for mode in modes():
            # The server below loads each in a moment: no need to try that beforehand.
            archive = pack(MODEL_CONFIGS / f"{mode}.yaml", checked=False)
            console.print(f"{archive.path.name}: {archive.size / 1e6:.1f} MB")
        models = {mode: f"{mode}.mar" for mode in modes()}
        torchserve = TorchServe(BUILD / "demo", MODEL_STORE, models, timeout=300)
        with console.status("Starting TorchServe"):
            server = torchserve.start()
        try:
            failed = _ask_all(server)
        finally:
            server.stop()
    if failed:
        console.print(f"Failed: {', '.join(failed)}")
        raise typer.Exit(1)


def _ask_all(server: Server) -> list[str]:
    """Ask every model and print what it answers; returns the paths that did not answer well."""
    table = Table("request", "answer", box=box.ROUNDED, show_lines=True, expand=True)
    paths = [f"/predictions/{mode}" for mode in modes()] + [f"/explanations/{EXPLAINED}"]
    failed = [path for path in paths if not _ask(server, path, table)]
    console.print(table)
    return failed + [mode for mode in modes() if not _write_page(server, mode)]


def _ask(server: Server, path: str, table: Table) -> bool:
    body = sample(path.rsplit("/", 1)[1])
    answer = httpx.post(server.inference_url + path, json=body, timeout=120, trust_env=False)
    table.add_row(Group(f"POST {path}", _shown(body)), _shown(_brief(answer.json())))
    return answer.is_success


def _write_page(server: Server, mode: str) -> bool:
    url = f"{server.inference_url}/explanations/{mode}"
    headers = {"Accept": "text/html"}
    answer = httpx.post(url, json=sample(mode), headers=headers, timeout=120, trust_env=False)
    PAGES.mkdir(parents=True, exist_ok=True)
    page = PAGES / f"{mode}.html"
    page.write_bytes(answer.content)
    console.print(f"Why it answered so: {page}")
    return answer.is_success


def sample(mode: str) -> dict[str, Any]:
    """Return the request body that shows a mode."""
    body: dict[str, Any] = json.loads((ARTIFACTS / mode / "sample.json").read_text("utf-8"))
    return body


def _brief(value: Any) -> Any:
    """Round numbers, so that an answer reads well beside its request."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list):
        return [_brief(item) for item in value]
    if isinstance(value, dict):
        return {key: _brief(item) for key, item in value.items()}
    return value


def _shown(value: Any) -> Pretty:
    return Pretty(value, indent_size=1)


def run() -> None:
    """Start the command line."""
    typer.run(main)


if __name__ == "__main__":
    run()
