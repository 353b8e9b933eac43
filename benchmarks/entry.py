"""A contender that takes part in a mode, and all that was measured of it."""

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
from benchmarks.turn import Plan, Turn, turn
from handlers.errors import KitError
from scripts.kit.archive import Archive

# Its environment takes 4 GB, so it takes part when it is named.
COSTLY = {"mlserver"}
MODES = ("sequence_classification", "token_classification", "question_answering")


class NoSuchContender(KitError):
    """A name that no contender has."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        super().__init__(f"There is no contender {name!r}; there are {', '.join(sorted(known))}.")


@dataclass
class Entry:
    """A contender, and what it did.

    Attributes:
        contender: the server.
        archive: what packing it took; None where it is not this kit's.
        unpacked: that archive's folder, for its engine.
        longer: other rows, by name, that its engine is measured with as well.
        turns: one a round.
        failure: the sentence that says why it is out.
    """

    contender: Contender
    archive: Archive | None = None
    unpacked: Path | None = None
    longer: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    failure: str | None = None

    def prepare(self, folder: Path, *, checked: bool) -> None:
        """Make its archive, and unpack it for the engine."""
        if isinstance(self.contender, Kit):
            self.archive = self.contender.pack(checked=checked)
            self.unpacked = self.contender.unpack(folder / self.contender.archive.stem)
        elif isinstance(self.contender, Reference):
            self.contender.pack()

    def take_turn(self, inputs: Sequence[Any], plan: Plan) -> Turn:
        """Measure it once more and return what came out."""
        self.turns.append(turn(self.contender, inputs, plan, self.unpacked, self.longer))
        return self.turns[-1]


def names(mode: str) -> list[str]:
    """Return who can take part in a mode: the reference, the others, and this kit's formats."""
    litserve = ["litserve"] if mode == "sequence_classification" else []
    return ["reference", *litserve, "mlserver", *sources(mode)]


def entries(mode: str, checkpoint: Path, work: Path, only: Collection[str]) -> list[Entry]:
    """Return those who take part in a mode; `only` names them, empty for all but costly ones."""
    ours = {name: Kit(name, source, checkpoint, work) for name, source in sources(mode).items()}
    usual = ours["kit"]
    batch = usual.config.batchSize
    everyone: dict[str, Contender] = {
        "reference": Reference(mode, checkpoint, work),
        "litserve": LitServe(checkpoint, work, usual.precision, batch),
        "mlserver": MLServer(mode, checkpoint, work),
        **ours,
    }
    wanted = only or set(everyone) - COSTLY
    return [Entry(everyone[name]) for name in names(mode) if name in wanted]


def check_names(only: Collection[str], modes: Sequence[str]) -> None:
    """Check that every name is some contender's of some mode.

    Raises:
        NoSuchContender: when one is not.
    """
    known = known_names(modes)
    for name in only:
        if name not in known:
            raise NoSuchContender(name, known)


def known_names(modes: Sequence[str]) -> set[str]:
    """Return the names of all who can take part in some of the modes."""
    return {name for mode in modes for name in names(mode)}
