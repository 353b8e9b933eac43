"""Prepare small models, serve them, send each a request, show the answers, and stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console

from hf_serve.demo_models import ensure
from hf_serve.handlers.explainers import targets
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.command_line import split_names
from hf_serve.scripts.default_modes import default_modes
from hf_serve.scripts.paths import ARTIFACTS, BUILD, MODEL_STORE, config_path_of
from hf_serve.scripts.serving.openmp import short_spins
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from hf_serve.scripts.terminal import (
    answer_text,
    exchange_table,
    explanation_lines,
    request_text,
    target_of,
)

# The mode that is explained in the terminal where none is named; pages are written for each.
EXPLAINED = "sequence_classification"
PAGES = BUILD / "explanations"
SECONDS = 120

console = Console(highlight=False)


@plain_errors()
def main(
    mode: Annotated[
        list[str] | None,
        typer.Option(help="A mode, repeated or with commas; default: the most used ones."),
    ] = None,
) -> None:
    """Make, pack, serve and query the demo models; the exit code is 1 when a request failed."""
    named = split_names(mode)
    modes = named or default_modes()
    with short_spins():
        ensure(modes)
        _pack(modes)
    models = {each: f"{each}.mar" for each in modes}
    torchserve = TorchServe(BUILD / "demo", MODEL_STORE, models)
    with console.status("Starting TorchServe"):
        server = torchserve.start()
    try:
        explained = list(filter(targets.get, named or [EXPLAINED]))
        failed = _predict(server, modes) + _explain(server, explained)
        failed += _write_pages(server, list(filter(targets.get, modes)))
    finally:
        server.stop()
    if failed:
        console.print(f"Failed: {', '.join(dict.fromkeys(failed))}", soft_wrap=True)
        raise typer.Exit(1)


def sample(mode: str) -> dict[str, Any]:
    """Return the request body that shows a mode."""
    body: dict[str, Any] = json.loads((ARTIFACTS / mode / "sample.json").read_text("utf-8"))
    return body


def _pack(modes: Sequence[str]) -> None:
    for mode in modes:
        # The server loads each archive right away, so it is not loaded here as well.
        archive = pack(config_path_of(mode), checked=False)
        console.print(f"{archive.path.name}: {archive.size / 1e6:.1f} MB")
        if archive.choice:
            console.print(f"  {archive.choice}", markup=False)


def _predict(server: Server, modes: Sequence[str]) -> list[str]:
    """Show what every model answers; return the paths that did not answer."""
    table, failed = exchange_table(), []
    for mode in modes:
        path, inputs = f"/predictions/{mode}", sample(mode)["inputs"]
        answer = _post(server, path)
        failed += [] if answer.is_success else [path]
        table.add_row(request_text(path, inputs), answer_text(_read(answer), inputs))
    console.print(table)
    return failed


def _explain(server: Server, modes: Sequence[str]) -> list[str]:
    """Show why models answered as they did; return the paths that did not answer."""
    failed = []
    for mode in modes:
        path, inputs = f"/explanations/{mode}", sample(mode)["inputs"]
        answer = _post(server, path)
        console.print(f"\n[bold]{path}[/bold]")
        if answer.is_success:
            explanation = answer.json()
            console.print(f"Why the answer is {target_of(explanation)}:", markup=False)
            console.print(explanation_lines(explanation, inputs))
        else:
            console.print(answer_text(_read(answer), inputs))
            failed.append(path)
    return failed


def _write_pages(server: Server, modes: Sequence[str]) -> list[str]:
    """Write each explanation as an HTML page; return the paths that did not answer."""
    PAGES.mkdir(parents=True, exist_ok=True)
    failed, pages = [], []
    for mode in modes:
        path, page = f"/explanations/{mode}", PAGES / f"{mode}.html"
        answer = _post(server, path, accept="text/html")
        if answer.is_success:
            page.write_bytes(answer.content)
            pages.append(page)
        else:
            failed.append(path)
    if pages:
        console.print("\nExplanations as HTML pages, to open in a browser:")
    for page in pages:
        console.print(f"  {page}", markup=False, soft_wrap=True)
    return failed


def _post(server: Server, path: str, accept: str = "application/json") -> httpx.Response:
    """Send a mode's sample; a server that does not answer counts as status 503."""
    body, headers = sample(path.rpartition("/")[2]), {"Accept": accept}
    url = server.inference_url + path
    try:
        return httpx.post(url, json=body, headers=headers, timeout=SECONDS, trust_env=False)
    except httpx.TransportError as error:
        message = f"no answer ({type(error).__name__})"
        return httpx.Response(503, json={"code": 503, "message": message})


def _read(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return {"code": answer.status_code, "message": answer.text}


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
