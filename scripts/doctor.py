"""Check machine, configuration, archives and server, and say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scripts.kit.doctor import Installation, diagnose
from scripts.kit.places import BUILD, MODEL_CONFIGS, MODEL_STORE, ROOT


def main(
    yamls: Annotated[
        list[Path] | None, typer.Argument(help="YAML files; default: those of model_configs/.")
    ] = None,
    config: Annotated[Path, typer.Option(help="The config.properties.")] = ROOT
    / "config.properties",
    model_store: Annotated[Path, typer.Option(help="The folder of archives.")] = MODEL_STORE,
    workdir: Annotated[Path, typer.Option(help="The folder of the server.")] = BUILD / "server",
    public_key: Annotated[
        Path | None, typer.Option(help="The key that archives must be signed with.")
    ] = None,
) -> None:
    """Check machine, configuration, archives and server; exit code 1 where something is wrong."""
    named = yamls or sorted(MODEL_CONFIGS.rglob("*.yaml"))
    problems = 0
    for finding in diagnose(Installation(config, model_store, named, workdir, public_key)):
        problems += finding.level == "problem"
        typer.echo(str(finding))
    if problems:
        typer.echo(f"{problems} problems.", err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
