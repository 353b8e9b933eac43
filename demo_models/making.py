"""Making demo models: each is written to a staging folder and installed in one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hf_serve.demo_models.evaluation import Score
from hf_serve.demo_models.trainers import modes, trainer_of
from hf_serve.handlers.checkpoints.checkpoint_files import files_in
from hf_serve.handlers.config.messages import suggest
from hf_serve.handlers.errors import KitError, WrongCheckpoint
from hf_serve.scripts.default_modes import default_modes
from hf_serve.scripts.hub.checkpoint_files import ROOT_FILES
from hf_serve.scripts.hub.download import Source
from hf_serve.scripts.hub.staging import Staging
from hf_serve.scripts.paths import MODELS

MODES = tuple(modes())
SEED = 7


class UnknownMode(KitError):
    """There is no demo model of that name."""

    def __init__(self, mode: str) -> None:
        hint = suggest(mode, list(MODES))
        end = "" if hint.endswith("?") else "."
        super().__init__(f"There is no demo model {mode!r}; {hint}{end}")


@dataclass(frozen=True)
class Made:
    """One checkpoint after `make_all`; `seconds` is 0 if it existed already.

    `included` tells that it comes with the kit, and was installed now, not trained.
    """

    mode: str
    score: Score | None
    included: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def make(
    mode: str,
    target: Path,
    *,
    seed: int = SEED,
    rows: int | None = None,
    evaluation_rows: int | None = None,
    tick: Callable[[float], None] = lambda done: None,
) -> Score:
    """Install the demo model of a mode at `target`, in place of an earlier one.

    A model that comes with the kit is installed as it is. Any other one is trained, as is one for
    which another seed is given or `rows` and `evaluation_rows`, which shorten the training.

    Raises:
        UnknownMode: when there is no trainer for the mode.
        KitError: when the pretrained model is not installed, or another command is making it.
    """
    check(mode)
    trainer = trainer_of(mode)
    ready = trainer.included and seed == SEED and rows is evaluation_rows is None
    rows, evaluation_rows = rows or trainer.plan.rows, evaluation_rows or trainer.evaluation_rows
    with Staging.open(target) as staging:
        staging.keep_only(())
        folder = staging.folder
        if ready:
            measures = trainer.install(folder)
        else:
            measures = trainer.train(
                folder, seed=seed, rows=rows, evaluation_rows=evaluation_rows, tick=tick
            )
        score = Score(mode, seed, evaluation_rows, measures)
        score.write(folder)
        _source(mode, seed, folder).write(folder)
        staging.install()
    return score


def make_all(
    selected: Iterable[str] = (),
    folder: Path = MODELS,
    *,
    force: bool = False,
    console: Console | None = None,
) -> list[Made]:
    """Make the demo models of some modes, or of the default ones; a finished checkpoint is kept.

    Raises:
        KitError: as `make` does.
        WrongCheckpoint: when something else is in a checkpoint's place.
    """
    names = list(selected) or default_modes()
    for mode in names:
        check(mode)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        return [_make_or_keep(mode, folder / mode, force, progress) for mode in names]


def ensure(selected: Iterable[str] = ()) -> None:
    """Make the missing demo models of some modes, or of the default ones, in `artifacts/models/`.

    Raises:
        KitError: as `make_all` does.
    """
    make_all(selected)


def check(mode: str) -> None:
    """Check that there is a demo model of a name.

    Raises:
        UnknownMode: when there is none.
    """
    if mode not in MODES:
        raise UnknownMode(mode)


def _make_or_keep(mode: str, target: Path, force: bool, progress: Progress) -> Made:
    if not force and _is_finished(target):
        return Made(mode, Score.read(target))
    included = trainer_of(mode).included
    wall, cpu = time.monotonic(), time.process_time()
    bar = progress.add_task(mode, total=1.0)
    score = make(mode, target, tick=lambda done: progress.update(bar, completed=done))
    return Made(mode, score, included, time.monotonic() - wall, time.process_time() - cpu)


def _is_finished(target: Path) -> bool:
    if any((target / name).is_file() for name in ROOT_FILES):
        return True
    if target.exists():
        problem, remedy = "is no checkpoint", "move it away or add --force"
        raise WrongCheckpoint(str(target), problem, remedy)
    return False


def _source(mode: str, seed: int, folder: Path) -> Source:
    sizes = {name: (folder / name).stat().st_size for name in sorted(files_in(folder))}
    return Source(model_name=f"demo/{mode}", revision=None, commit=f"seed-{seed}", files=sizes)
