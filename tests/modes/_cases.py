"""The test cases of a mode for the tests over all modes, and texts for its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FINE = "A fine film with a great cast, and the music is lovely."
ODD = "The naïve señor's café in Zürich 🎉 opened: unbelievable… 北京是首都!"
LONG = "Nina Vogel sings in Paris; her brother Tom lives in New York. " * 9


def same(text: Any) -> Any:
    """Return the inputs of a mode that takes a text alone."""
    return text


@dataclass(frozen=True)
class ModeCases:
    """The test cases of a mode.

    Attributes:
        inputs: inputs with different answers of a tiny model.
        parameters: sets of parameters, each for all of the inputs.
        brief: parameters for a short result, used with every wire format.
        labels: names of the classes of its tiny checkpoints; empty if the mode has none.
        config: values of the config of its tiny checkpoints.
        with_text: returns inputs that contain a text.
        text_name: the name of that text in errors.
        in_windows: whether a text that is too long is read in windows, and never refused.
        rows: inputs for a table; by default those that are one text.
        tensor: the name of the tensor that a text is sent in.
        settings: the YAML's `handler:` keys for short results without parameters.
        repeatable: the YAML's keys without which the same request gets another answer each time.
        accepted: parameters and values that look wrong and are not.
        adds_words: whether a row has words that are not among its inputs.
        write: writes its tiny checkpoint to a folder, with values of the config and the seed of
            the weights, where :mod:`tests.tiny` has none for the mode.
    """

    inputs: Sequence[Any]
    parameters: Sequence[dict[str, Any]]
    brief: Mapping[str, Any] = field(default_factory=dict)
    labels: Sequence[str] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    with_text: Callable[[Any], Any] = same
    text_name: str = "inputs"
    in_windows: bool = False
    rows: Sequence[Any] = ()
    tensor: str = "args"
    settings: Mapping[str, Any] = field(default_factory=dict)
    repeatable: Mapping[str, Any] = field(default_factory=dict)
    accepted: Sequence[tuple[str, Any]] = ()
    adds_words: bool = False
    write: Callable[[Path, Mapping[str, Any], int], object] | None = None

    @property
    def table(self) -> list[Any]:
        """Inputs for the rows of a table."""
        return list(self.rows or (each for each in self.inputs if isinstance(each, str)))
