"""Serve a model under faults and load, and say what clients saw: `make soak`, `make soak SOAK=90`.

The faults come first, one after the other, each beside clients that go on. Then a steady load runs
until the end, with clients that hang up and requests that do not end, and memory is compared.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
import yaml

from benchmarks.machine import machine
from benchmarks.reliability import pings
from benchmarks.reliability.clients import Clients, Expected, Outcome, learn_answers
from benchmarks.reliability.faults import (
    FAULTS,
    MODEL,
    PATH,
    CannotTry,
    full_disk,
    hang_up,
    send_halves_and_slowly,
    worker_pids,
)
from benchmarks.reliability.page import write_page
from hf_serve.demo_models import ensure
from hf_serve.handlers.errors import KitError
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.paths import BUILD, MODELS
from hf_serve.scripts.serving.ports import HOST
from hf_serve.scripts.serving.processes import group_members
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe

WORKERS, BATCH, QUEUE = 2, 4, 32
# Half of it for a batch, so that a worker that does not run is replaced soon.
RESPONSE_TIMEOUT = 4
CLIENTS = 8
# Ten times the requests that wait or run.
CROWD = 10 * (QUEUE + WORKERS * BATCH)
# An archive of 91 MB, and less than a second one needs.
STORE_BYTES = 160 << 20
# What is promised, in seconds.
NORMAL_AGAIN, REFUSED_WITHIN, LIVENESS_MS, MEMORY_GROWTH = 15.0, 1.0, 50.0, 0.05
# It is normal again where no answer fails for so long.
QUIET = 2.0
PART = 4.0
MIB = 1 << 20


@dataclass
class Row:
    """What clients saw during a fault.

    Attributes:
        what: the fault.
        statuses: how many answers had each status; 0 stands for none.
        wrong: answers with status 200 that belong to another request.
        seconds: from the end of the fault until everything was normal again; None where it was not.
        slowest_refusal: the longest time of an answer with status 503, in seconds.
        note: what else was seen.
        skipped: why this machine cannot try it.
    """

    what: str
    statuses: dict[int, int] = field(default_factory=dict)
    wrong: int = 0
    seconds: float | None = None
    slowest_refusal: float | None = None
    note: str = ""
    skipped: str = ""

    @property
    def passes(self) -> bool:
        """Whether each request had its own answer, and everything was normal again in time."""
        if self.skipped:
            return True
        in_time = self.seconds is not None and self.seconds <= NORMAL_AGAIN
        refused = (self.slowest_refusal or 0.0) <= REFUSED_WITHIN
        return in_time and refused and not self.wrong and not self.statuses.get(0)


@dataclass
class Soak:
    """A run: its server, what clients expect, and the rows so far."""

    server: Server
    expected: Expected
    rows: list[Row] = field(default_factory=list)

    def try_faults(self) -> None:
        """Try each fault beside clients that send requests."""
        for what, fault in FAULTS.items():
            row = Row(what)
            with self._clients(CLIENTS) as clients:
                time.sleep(QUIET)
                try:
                    row.note = fault(self.server, self.expected, PART)
                except CannotTry as error:
                    row.skipped = str(error)
                start = time.monotonic()
                normal = self._normal_again(clients, start)
            self._add(row, clients.outcomes, start, normal)

    def crowd(self) -> list[float]:
        """Send ten times what waits and runs; returns the times of `/ping`, in milliseconds."""
        row = Row(f"overload: {CROWD} clients for {QUEUE} waiting requests")
        with self._clients(CROWD) as clients:
            prober = pings.start(HOST, self.server.ports.inference, PART)
            times = pings.times(prober)
        end = time.monotonic()
        with self._clients(CLIENTS) as after:
            normal = self._normal_again(after, end)
        refusals = [each.seconds for each in clients.outcomes if each.status == 503]
        row.slowest_refusal = round(max(refusals), 3) if refusals else None
        self._add(row, [*clients.outcomes, *after.outcomes], end, normal)
        return times

    def fill_the_disk(self, store: Path, fill: Any) -> None:
        """Fill the disk of the model store: packing says so, and answers go on."""
        row = Row("disk of the model store full")
        before = sorted(path.name for path in store.iterdir())
        with self._clients(CLIENTS) as clients:
            time.sleep(QUIET)
            start = time.monotonic()
            fill()
            try:
                pack(_config(store.parent, "another"), export_path=store, checked=False)
            except KitError as error:
                row.note = f"packing says: {str(error).partition(';')[0]}"
            else:
                row.wrong += 1
            normal = self._normal_again(clients, start)
        (store / ".filling").unlink()
        row.wrong += before != sorted(path.name for path in store.iterdir())
        self._add(row, clients.outcomes, start, normal)

    def stay(self, seconds: float, memory_from: float) -> dict[str, float]:
        """Send a steady load; returns the memory at a time and at the end, in MiB."""
        row, start = Row("steady load with clients that hang up"), time.monotonic()
        first = 0.0
        with self._clients(CLIENTS) as clients:
            while time.monotonic() - start < seconds:
                hang_up(self.server, self.expected, min(PART, seconds / 4))
                send_halves_and_slowly(self.server, self.expected, min(PART, seconds / 4))
                if not first and time.monotonic() - start >= min(memory_from, seconds / 2):
                    first = self._memory()
            last = self._memory()
            end = time.monotonic()
            normal = self._normal_again(clients, end)
        self._add(row, clients.outcomes, end, normal)
        return {"first": first, "last": last, "growth": round(last / first - 1, 4)}

    def _clients(self, count: int) -> Clients:
        return Clients(self.server.inference_url + PATH, self.expected, count)

    def _normal_again(self, clients: Clients, start: float) -> float | None:
        """Wait until no answer fails for a while and all workers are ready; returns the time."""
        end = start + 2 * NORMAL_AGAIN
        ready_since: float | None = None
        while time.monotonic() < end:
            # A worker that does not run counts as ready until TorchServe has noticed it.
            is_fast = clients.longest_wait < QUIET / 2
            is_ready = is_fast and len(worker_pids(self.server)) == WORKERS
            ready_since = (ready_since or time.monotonic()) if is_ready else None
            failed = [each.ended for each in tuple(clients.outcomes) if each.status != 200]
            since = max([start, ready_since or 0.0, *failed])
            if ready_since and time.monotonic() - since >= QUIET:
                return since
            time.sleep(0.1)
        return None

    def _add(
        self, row: Row, outcomes: Sequence[Outcome], start: float, normal: float | None
    ) -> None:
        """Add a row, with the time from the end of its fault until everything was normal."""
        row.statuses = dict(sorted(Counter(each.status for each in outcomes).items()))
        row.wrong += sum(not each.own for each in outcomes)
        row.seconds = None if normal is None else round(normal - start, 1)
        self.rows.append(row)
        print(row, flush=True)

    def _memory(self) -> float:
        """Return the resident memory of the server and its workers in MiB."""
        members = group_members(self.server.pid)
        return round(sum(each.memory_info().rss for each in members) / MIB, 1)


def run(seconds: float, folder: Path) -> dict[str, Any]:
    """Run everything in a folder, and return what was measured."""
    ensure(["sequence_classification"])
    start = time.monotonic()
    store = folder / "model_store"
    store.mkdir()
    try:
        with full_disk(store, STORE_BYTES) as fill:
            return _measure(seconds, start, store, fill)
    except CannotTry as error:
        return _measure(seconds, start, store, None, str(error))


def _measure(
    seconds: float, start: float, store: Path, fill: Any, skipped: str = ""
) -> dict[str, Any]:
    pack(_config(store.parent, MODEL), export_path=store, checked=False)
    torchserve = TorchServe(
        workdir=store.parent / "server",
        model_store=store,
        config_overrides={"job_queue_size": str(QUEUE)},
        timeout=300,
    )
    with torchserve as server:
        soak = Soak(server, learn_answers(server.inference_url + PATH))
        soak.try_faults()
        if fill:
            soak.fill_the_disk(store, fill)
        else:
            soak.rows.append(Row("disk of the model store full", skipped=skipped))
        liveness = soak.crowd()
        rest = max(2.0, seconds - (time.monotonic() - start))
        # Minute 5 of a run of 30 minutes.
        memory = soak.stay(rest, max(0.0, seconds / 6 - (time.monotonic() - start)))
    rows = [{**asdict(row), "passes": row.passes} for row in soak.rows]
    return {
        "machine": machine(),
        "seconds": round(time.monotonic() - start),
        "rows": rows,
        "liveness_ms": {
            name: round(float(np.percentile(liveness, share)), 1)
            for name, share in (("p50", 50), ("p99", 99), ("max", 100))
        },
        "memory_mib": memory,
    }


def failures(document: dict[str, Any], *, whole: bool) -> list[str]:
    """Return what was promised and not kept.

    Args:
        document: the result of :func:`run`.
        whole: whether the run was long enough to compare memory.
    """
    found = [row["what"] for row in document["rows"] if not row["passes"]]
    if document["liveness_ms"]["p99"] > LIVENESS_MS:
        found.append(f"liveness under load: {document['liveness_ms']['p99']} ms at p99")
    if whole and document["memory_mib"]["growth"] > MEMORY_GROWTH:
        found.append(f"memory: {document['memory_mib']['growth']:+.1%}")
    return found


def _config(folder: Path, name: str) -> Path:
    handler = {
        "mode": "sequence_classification",
        "model_name": str(MODELS / "sequence_classification"),
        "dtype": "float32",
        "captum_explanation": False,
        "predict_timeout": RESPONSE_TIMEOUT / 2,
    }
    document = {
        "minWorkers": WORKERS,
        "maxWorkers": WORKERS,
        "batchSize": BATCH,
        "maxBatchDelay": 1,
        "responseTimeout": RESPONSE_TIMEOUT,
        "handler": handler,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def main(
    seconds: Annotated[float, typer.Option(help="How long the run takes.")] = 1800,
    output: Annotated[Path, typer.Option(help="The file of the result.")] = BUILD / "soak.json",
    page: Annotated[
        bool, typer.Option("--page", help="Write docs/reliability.md from the result.")
    ] = False,
) -> None:
    """Serve a model under faults and load, print the table, and fail where a promise is broken."""
    with TemporaryDirectory(prefix="soak-") as scratch:
        document = run(seconds, Path(scratch))
    broken = failures(document, whole=seconds >= 600)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(write_page(document, write=page))
    if broken:
        print(f"Not kept: {'; '.join(broken)}", file=sys.stderr)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
