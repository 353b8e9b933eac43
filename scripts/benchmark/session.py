"""Measure the formats of a model, each in its own processes, and keep what was measured."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import ConfigError
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.hosts.command_line import module_command
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.scripts.archives.exports import fingerprint, samples
from hf_serve.scripts.benchmark.candidates import Candidate
from hf_serve.scripts.benchmark.model_source import ModelSource
from hf_serve.scripts.serving.openmp import openmp_environment
from hf_serve.scripts.serving.processes import end_group

RESULTS, LOG, ARCHIVES = "results.json", "log.txt", "archives"
SEED = 0
PROGRAM = tuple(module_command("hf_serve.scripts.benchmark.measure"))

NO_ROWS = (
    "there are no rows to measure for this mode; name a JSON lines file of requests with"
    " handler.calibration"
)

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """A format with what was measured of it.

    Attributes:
        figures: the fields of :class:`hf_serve.scripts.benchmark.measure.Speed`; None of a format
            that is not possible or failed.
        problem: why it has no figures.
    """

    candidate: Candidate
    figures: Figures | None = None
    problem: str | None = None

    @property
    def fidelity(self) -> FidelityReport | None:
        """The comparison with the checkpoint in float32; None of a format that is exact."""
        report = self.figures and self.figures["fidelity"]
        return FidelityReport.from_json(report) if report else None


@dataclass(frozen=True)
class Plan:
    """How long a format is measured.

    Attributes:
        rows: the most rows.
        seconds: of batches, and then of single rows.
    """

    rows: int
    seconds: float


class Session:
    """Measures one format after the other.

    Figures are kept in a file of the folder, and taken from it where the model, the plan and the
    code are the same, so that an interrupted session goes on where it was.

    Args:
        folder: where figures, the log and archives are put; archives are removed when measured.
    """

    def __init__(self, source: ModelSource, folder: Path, plan: Plan) -> None:
        self._source, self._folder, self._plan = source, folder, plan
        folder.mkdir(parents=True, exist_ok=True)

    def measure(self, candidate: Candidate) -> Measured:
        """Return the figures of a format, which an earlier session may have measured."""
        if candidate.problem:
            return Measured(candidate, problem=candidate.problem)
        config_path = self._write_yaml(candidate)
        try:
            config = ModelConfig.read(config_path)
            requests = samples(config_path, config)
        except ConfigError as error:
            return Measured(candidate, problem=str(error))
        if not requests:
            return Measured(candidate, problem=NO_ROWS)
        digest = f"{fingerprint(config, self._source.checkpoint, requests)} {self._plan}"
        known = self._known()
        if known.get(candidate.name, {}).get("fingerprint") == digest:
            return Measured(candidate, known[candidate.name]["figures"])
        rows = [(each.inputs, dict(each.parameters)) for each in requests]
        random.Random(SEED).shuffle(rows)
        outcome = self._run(config_path, rows[: self._plan.rows])
        if problem := outcome.get("problem"):
            return Measured(candidate, problem=problem)
        known[candidate.name] = {"fingerprint": digest, "figures": outcome}
        self._write(known)
        return Measured(candidate, outcome)

    def forget(self) -> None:
        """Drop the figures of earlier sessions."""
        (self._folder / RESULTS).unlink(missing_ok=True)

    def _run(self, config_path: Path, rows: list[Any]) -> dict[str, Any]:
        """Pack a format and measure it; return its figures or its problem."""
        archives = self._folder / ARCHIVES
        try:
            if not (archive := self._source.packed):
                if problem := self._process({"path": str(config_path)}):
                    return problem
                archive = archives / config_path.stem
            measured = {"path": str(archive), "rows": rows, "seconds": self._plan.seconds}
            return self._process(measured)
        finally:
            shutil.rmtree(archives, ignore_errors=True)

    def _process(self, given: dict[str, Any]) -> dict[str, Any]:
        """Run :mod:`hf_serve.scripts.benchmark.measure` in a process, and return its outcome."""
        log = self._folder / LOG
        with log.open("a", encoding="utf-8") as errors:
            process = subprocess.Popen(
                PROGRAM,
                env={**OFFLINE, **openmp_environment(1, os.environ), **os.environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # Ctrl-C comes to this process alone, which ends the other one.
                start_new_session=True,
            )
            try:
                output, _ = process.communicate(json.dumps(given))
            except BaseException:
                end_group(process.pid)
                raise
        if process.returncode:
            return {"problem": _describe_end(process.returncode, log)}
        outcome: dict[str, Any] = json.loads(output.splitlines()[-1])
        return outcome

    def _write_yaml(self, candidate: Candidate) -> Path:
        path = self._folder / f"{self._source.name}.yaml"
        document = candidate.config_of(self._source.config)
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    def _known(self) -> dict[str, Any]:
        """Return the figures of earlier sessions; none where the file is not whole."""
        try:
            known: dict[str, Any] = json.loads((self._folder / RESULTS).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return known

    def _write(self, known: Mapping[str, Any]) -> None:
        draft = self._folder / f".{RESULTS}"
        draft.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
        draft.replace(self._folder / RESULTS)


def _describe_end(code: int, log: Path) -> str:
    if code < 0:
        return (
            f"its process was ended by signal {-code}, which the system sends where memory is short"
        )
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return f"its process ended with code {code}: {''.join(last) or 'no message'} ({log})"
