"""From a word in the YAML to the class or module in the file of that name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from handlers.accounts.base import BaseAccount
from handlers.description import Description
from handlers.formats.base import Model, Wanted
from handlers.protocols.base import BaseProtocol
from handlers.tasks.base import BaseTask
from handlers.words import files_of


class Format(Protocol):
    """What a file in `formats/` offers."""

    GENERATES: bool

    def load(self, wanted: Wanted) -> Model:
        """Load a model that was laid down in this format."""


def task_class(mode: str) -> type[BaseTask[Any, Any]]:
    """Return the `Task` of `handlers/tasks/<mode>.py`."""
    task: type[BaseTask[Any, Any]] = import_module(f"handlers.tasks.{mode}").Task
    return task


def format_module(save_mode: str) -> Format:
    """Return the module `handlers/formats/<save_mode>.py`."""
    module: Any = import_module(f"handlers.formats.{save_mode}")
    return module


def account_class(mode: str) -> type[BaseAccount[Any]] | None:
    """Return the `Account` of `handlers/accounts/<mode>.py`; None where a mode is not explained."""
    if mode not in files_of("accounts"):
        return None
    account: type[BaseAccount[Any]] = import_module(f"handlers.accounts.{mode}").Account
    return account


def protocols(model: Description) -> list[BaseProtocol]:
    """Return one of each protocol in `handlers/protocols/`, in the order of their rank."""
    found = [import_module(f"handlers.protocols.{name}").Protocol for name in files_of("protocols")]
    return [protocol(model) for protocol in sorted(found, key=lambda protocol: protocol.rank)]
