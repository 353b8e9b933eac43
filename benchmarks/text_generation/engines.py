"""Other engines, each in a process of its own, without a server.

A program in benchmarks/contenders/ reads a job as JSON from stdin: `model`, `clients`, `seconds`,
`longest` (tokens of a prompt and its new text, at most), `warm_up` (a list of requests) and
`workloads` (lists of requests by setting). A request has `prompt` (token ids), `new_tokens`,
`temperature` (null for greedy) and `seed`. The line that it prints as JSON has `tokens` and
`seconds` by setting.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.contenders.external import NotInstalled
from benchmarks.text_generation.contender import GenerationContender, Job, Speed, Turn
from benchmarks.text_generation.workloads import LONGEST_TEXT
from hf_serve.handlers.errors import KitError
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.openmp import openmp_environment
from hf_serve.scripts.serving.processes import end_group
from hf_serve.scripts.serving.torchserve import DROPPED

PROGRAMS = ROOT / "benchmarks" / "contenders"
EXPORT = PROGRAMS / "openvino_export.py"
TIMEOUT = 3600
VLLM_ENVIRONMENT = ".venv-vllm"
# In GiB.
VLLM_CACHE = {"VLLM_CPU_KVCACHE_SPACE": "2"}


class EngineFailed(KitError):
    """A program exited with an error, or took too long."""

    def __init__(self, name: str, log: Path) -> None:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        errors = [line.strip() for line in lines if "Error" in line] or ["no error"]
        super().__init__(f"{name} failed: {errors[-1][:300]} (log: {log}).")


class Engine(GenerationContender):
    """A program that generates texts in process.

    Args:
        name: the contender's name.
        precision: the dtype of its matrix products.
        program: the name of the program and its arguments.
        work: folder for the log.
        environment: variables that it needs.
        python: the interpreter; by default that of this process.
    """

    def __init__(
        self,
        name: str,
        precision: str,
        program: Sequence[str],
        work: Path,
        environment: Mapping[str, str] | None = None,
        python: Path = Path(sys.executable),
    ) -> None:
        self.name, self.precision = name, precision
        # -P: programs import installed packages, not files beside them.
        self._command: list[str | Path] = [python, "-P", PROGRAMS / program[0], *program[1:]]
        self._environment = environment or {}
        self._log = work / "engines" / f"{name}.log"

    def measure(self, job: Job) -> Turn:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                self._command,
                env=_environment(self._environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            try:
                output, _ = process.communicate(_message(self._model(job), job), TIMEOUT)
            except subprocess.TimeoutExpired:
                log.write(f"Error: it did not finish within {TIMEOUT} s\n")
                output = ""
            finally:
                end_group(process.pid)
            log.write(output)
        return self._turn(output)

    def _model(self, job: Job) -> Path:
        return job.checkpoint

    def _turn(self, output: str) -> Turn:
        found = [line for line in output.splitlines() if line.startswith("{")]
        if not found:
            raise EngineFailed(self.name, self._log)
        return Turn({name: Speed(**each) for name, each in json.loads(found[-1]).items()})


class OpenVINOEngine(Engine):
    """openvino-genai, with a model that optimum-intel exports.

    Args:
        checkpoint: the model to export.
        work: folder for the export and the log.
    """

    def __init__(self, checkpoint: Path, work: Path) -> None:
        super().__init__("openvino_genai", "bfloat16", ["openvino_genai_engine.py"], work)
        self._checkpoint, self._exported = checkpoint, work / "openvino"

    def prepare(self) -> None:
        if (self._exported / "openvino_model.bin").is_file():
            return
        shutil.rmtree(self._exported, ignore_errors=True)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            done = subprocess.run(
                [sys.executable, "-P", EXPORT, self._checkpoint, self._exported],
                env=_environment({}),
                stdout=log,
                stderr=log,
                timeout=TIMEOUT,
            )
        if done.returncode:
            raise EngineFailed(self.name, self._log)

    def _model(self, job: Job) -> Path:
        return self._exported


class VLLM(Engine):
    """vLLM's CPU build.

    Args:
        name: the contender's name.
        work: folder for the log.
        environment: settings in addition to the size of its cache.
    """

    def __init__(self, name: str, work: Path, environment: Mapping[str, str]) -> None:
        self._python = ROOT / VLLM_ENVIRONMENT / "bin" / "python"
        variables = {**VLLM_CACHE, **environment}
        super().__init__(name, "bfloat16", ["vllm_engine.py"], work, variables, self._python)

    def prepare(self) -> None:
        if not self._python.is_file():
            raise NotInstalled(self.name, VLLM_ENVIRONMENT)


def engines(checkpoint: Path, work: Path, clients: int) -> list[Engine]:
    """Return the engines for a model; `work` is a folder of this model."""
    generate = "transformers_engine.py"
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return [
        Engine("transformers_static", "bfloat16", [generate, "bfloat16", str(clients)], work),
        Engine("transformers_single", "float32", [generate, "float32", "1"], work),
        OpenVINOEngine(checkpoint, work),
        # By default it leaves a core to its other processes, which is slower on some machines.
        VLLM("vllm", work, {}),
        VLLM("vllm_all_cores", work, {"VLLM_CPU_OMP_THREADS_BIND": cores}),
    ]


def _message(model: Path, job: Job) -> str:
    message = {
        "model": str(model),
        "clients": job.plan.clients,
        "seconds": job.plan.seconds,
        "longest": LONGEST_TEXT,
        "warm_up": [asdict(each) for each in job.warm_up],
        "workloads": {
            name: [asdict(each) for each in requests] for name, requests in job.workloads.items()
        },
    }
    return json.dumps(message)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    return {**OFFLINE, **openmp_environment(1, kept), **more, **kept}
