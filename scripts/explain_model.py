"""Explain what a model answers, in the terminal or as a page."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hf_serve.handlers.errors import KitError
from hf_serve.hosts.archives import MANIFEST
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.installation import command_line
from hf_serve.scripts.paths import YAMLS

console = Console(highlight=False, soft_wrap=True)


class NotExplained(KitError):
    """A file is none whose model can be explained."""


@plain_errors()
def main(
    model: Annotated[
        Path, typer.Argument(help="An archive, or the folder of a checkpoint.", exists=True)
    ],
    inputs: Annotated[
        str, typer.Argument(help="A text, the path of an image, or an object as JSON.")
    ],
    mode: Annotated[str | None, typer.Option(help="The mode, where the files fit several.")] = None,
    method: Annotated[
        str | None, typer.Option(help="The method of the explanation; default: the mode's own.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="What is explained, such as a label; default: the answer.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write the explanation to this file, as an HTML page.")
    ] = None,
) -> None:
    """Say which words of a text, or parts of an image, made a model's answer."""
    if model.suffix in YAMLS:
        raise NotExplained(
            f"{model} is a YAML file; explain its archive, which `{command_line('pack', model)}`"
            " writes, or the folder of its checkpoint."
        )
    parsed = read(inputs)
    options = {"method": method, "target": target}
    with console.status(f"Loading {model}"):
        # These imports load torch, which takes seconds, and `--help` does not need it.
        from hf_serve.hosts.notebook import Engine  # noqa: PLC0415
        from hf_serve.scripts.terminal import explanation_lines, target_of  # noqa: PLC0415

        engine = Engine.load(model, mode=mode or _detected_mode(model))
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    explanation = engine.explain(parsed, **given)
    if page:
        page.write_bytes(explanation.page())
        console.print(f"The explanation is in {page}.", markup=False)
        return
    console.print(f"Why the answer is {target_of(explanation)}:", markup=False)
    console.print(explanation_lines(explanation, parsed))


def read(inputs: str) -> Any:
    """Return the object that an argument has as JSON, the path that it is, or the text itself."""
    if inputs.lstrip().startswith("{"):
        try:
            return json.loads(inputs)
        except ValueError:
            return inputs  # A text may begin with a brace.
    try:
        return Path(inputs) if Path(inputs).is_file() else inputs
    except OSError:  # A text may be too long for a path.
        return inputs


def _detected_mode(model: Path) -> str | None:
    """Return the mode of the folder of a checkpoint; None for an archive, which has its own."""
    if model.is_file() or (model / MANIFEST).is_file():
        return None
    # This import loads torch.
    from hf_serve.scripts.hub.mode_detection import detect_mode  # noqa: PLC0415

    return detect_mode(model, None, str(model)).mode


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
