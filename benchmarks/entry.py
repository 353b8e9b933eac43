"""A contender of a mode with its measurements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders.base import Contender
from benchmarks.contenders.kit import Kit, sources
from benchmarks.contenders.litserve import LitServe
from benchmarks.contenders.mlserver import MLServer
from benchmarks.contenders.reference import Reference
from benchmarks.measurement import Measurement, Plan, measure
from hf_serve.handlers.errors import KitError
from hf_serve.scripts.archives.packing import Archive

# Excluded by default, because its environment takes 4 GB.
OPT_IN = {"mlserver"}
MODES = ("sequence_classification", "token_classification", "question_answering")


class UnknownContender(KitError):
    """There is no contender of this name."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        super().__init__(f"There is no contender {name!r}; there are {', '.join(sorted(known))}.")


@dataclass
class Entry:
    """A contender with its measurements.

    Attributes:
        contender: the server.
        archive: the packed archive; None for servers other than this kit.
        unpacked: the folder of the unpacked archive, to measure the engine.
        longer: additional inputs by name, to measure the engine.
        measurements: one per round.
        failure: the error message, if it failed.
    """

    contender: Contender
    archive: Archive | None = None
    unpacked: Path | None = None
    longer: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    failure: str | None = None

    def prepare(self, folder: Path, *, checked: bool) -> None:
        """Pack the archive, and unpack it to measure the engine."""
        if isinstance(self.contender, Kit):
            self.archive = self.contender.pack(checked=checked)
            self.unpacked = self.contender.unpack(folder / self.contender.archive.stem)
        elif isinstance(self.contender, Reference):
            self.contender.pack()

    def measure(self, inputs: Sequence[Any], plan: Plan) -> Measurement:
        """Add a measurement and return it."""
        self.measurements.append(measure(self.contender, inputs, plan, self.unpacked, self.longer))
        return self.measurements[-1]


def names(mode: str) -> list[str]:
    """Return the contenders of a mode: the reference, other servers, and this kit's formats."""
    litserve = ["litserve"] if mode == "sequence_classification" else []
    return ["reference", *litserve, "mlserver", *sources(mode)]


def entries(mode: str, checkpoint: Path, work: Path, only: Collection[str]) -> list[Entry]:
    """Return the selected contenders of a mode; by default all except the opt-in ones."""
    ours = {name: Kit(name, source, checkpoint, work) for name, source in sources(mode).items()}
    default = ours["kit"]
    batch = default.config.batchSize
    contenders: dict[str, Contender] = {
        "reference": Reference(mode, checkpoint, work),
        "litserve": LitServe(checkpoint, work, default.precision, batch),
        "mlserver": MLServer(mode, checkpoint, work),
        **ours,
    }
    selected = only or set(contenders) - OPT_IN
    return [Entry(contenders[name]) for name in names(mode) if name in selected]


def check_names(only: Collection[str], modes: Sequence[str]) -> None:
    """Check that every name is a contender of one of the modes.

    Raises:
        UnknownContender: a name is unknown.
    """
    known = known_names(modes)
    for name in only:
        if name not in known:
            raise UnknownContender(name, known)


def known_names(modes: Sequence[str]) -> set[str]:
    """Return the names of all contenders of the modes."""
    return {name for mode in modes for name in names(mode)}
