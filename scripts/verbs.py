"""The command `hf-serve`: each verb is a command of this folder."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.installation import SERVER, VERBS


class Verbs(TyperGroup):
    """The verbs, whose modules are imported when they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"{__package__}.{VERBS[cmd_name]}")
        command = typer.main.get_command(getattr(module, "app", None) or _app_of(module.main))
        if VERBS[cmd_name] == SERVER and isinstance(command, TyperGroup):
            return command.commands[cmd_name]
        command.name = cmd_name
        return command


def _app_of(main: object) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(main)  # type: ignore[type-var]
    return app


app = typer.Typer(cls=Verbs, no_args_is_help=True, add_completion=False)


@app.callback()
@plain_errors()
def hf_serve() -> None:
    """Serve Hugging Face models on TorchServe."""


if __name__ == "__main__":
    app()
