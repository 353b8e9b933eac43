from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_serve.handlers.batching.rows import Outputs, Row
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.engine import HEALTH_CHECKS, Engine
from hf_serve.handlers.errors import BadRequest, DeadlineExceeded, InternalError, WrongConfig
from hf_serve.handlers.model import Model
from hf_serve.handlers.process.threads import SeveralThreads
from hf_serve.handlers.tasks.bases.text import TextTask
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.model_info import ModelOutputs, TaskDescription, Wire
from hf_serve.handlers.types.parameters import Parameters
from hf_serve.handlers.types.request import Request, TokenCount
from tests.sentences import refused

Checkpoints = Callable[..., Path]


class Doubling(TextTask[int, Row]):
    """Doubles a number; every batch that contains 13 fails."""

    description = TaskDescription(
        Wire(inputs=int, results=int, example={"inputs": 1}), ModelOutputs(("sums",))
    )
    parameters = Parameters

    def parse(self, request: Request) -> int:
        if not isinstance(request.inputs, int):
            raise BadRequest("inputs must be a number.")
        return int(request.inputs)

    def encode(self, queries: Sequence[int]) -> list[list[Row] | BadRequest]:
        rows = [[Row({"input_ids": [query] * (3 + query % 3)})] for query in queries]
        return [
            BadRequest("7 is refused.") if 7 in row[0].features["input_ids"] else row
            for row in rows
        ]

    def decode(self, query: int, rows: Sequence[Row], outputs: Sequence[Outputs]) -> int:
        return int(outputs[0]["sums"]) * 2 // len(rows[0])


class Summing(Model):
    """Sums each row's ids and counts its calls."""

    def __init__(self) -> None:
        self.forwards = 0

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        self.forwards += 1
        if 13 in batch["input_ids"]:
            raise RuntimeError("13")
        return {"sums": (batch["input_ids"] * batch["attention_mask"]).sum(dim=1)}

    def generate(self, *_: Any, **__: Any) -> torch.Tensor:
        raise NotImplementedError


@pytest.fixture
def engine(checkpoint: Checkpoints) -> Engine:
    settings = HandlerSection(mode="sequence_classification")
    parts = Checkpoint.read(checkpoint("sequence_classification"), settings)
    return Engine(Doubling(parts, settings), Summing())


def ask(engine: Engine, *numbers: Any) -> list[Any]:
    return engine.predict([Request(number) for number in numbers])


def test_requests_run_in_one_batch_and_keep_their_order(engine: Engine) -> None:
    assert ask(engine, 4, 2, 9, 6, 1) == [8, 4, 18, 12, 2]
    assert engine.model.forwards == 1  # type: ignore[attr-defined]


def test_the_tokens_of_a_request_are_counted_where_it_asks(engine: Engine) -> None:
    counts = [TokenCount(), TokenCount()]
    engine.predict(
        [Request(4, token_count=counts[0]), Request(3), Request(5, token_count=counts[1])]
    )
    assert [each.tokens for each in counts] == [4, 5]


def test_a_request_that_cannot_be_parsed_or_encoded_fails_alone(engine: Engine) -> None:
    first, text, second, seven, third = ask(engine, 4, "a", 2, 7, 9)
    assert [first, second, third] == [8, 4, 18]
    assert (str(text), str(seven)) == ("inputs must be a number.", "7 is refused.")
    assert engine.model.forwards == 1  # type: ignore[attr-defined]


def test_a_batch_that_fails_is_run_one_by_one_and_only_bad_rows_fail(engine: Engine) -> None:
    outcomes = ask(engine, 4, 13, 2, 13, 9)
    assert [outcomes[at] for at in (0, 2, 4)] == [8, 4, 18]
    assert all(isinstance(outcomes[at], InternalError) for at in (1, 3))


def test_no_forward_call_is_made_without_requests(engine: Engine) -> None:
    assert ask(engine) == []
    assert all(isinstance(outcome, BadRequest) for outcome in ask(engine, "a", "b"))
    assert engine.model.forwards == 0  # type: ignore[attr-defined]


def test_one_thread_at_a_time_runs_the_model(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, may_end = threading.Event(), threading.Event()
    forward = engine.model.forward

    def slow(batch: Any) -> Any:
        runs.set()
        assert may_end.wait(60)
        return forward(batch)

    monkeypatch.setattr(engine.model, "forward", slow)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(engine.predict, [Request(1)])
        try:
            assert runs.wait(60)
            for run in (engine.predict, engine.explain):
                with pytest.raises(SeveralThreads):
                    run([Request(2)])
        finally:
            may_end.set()
        assert not isinstance(first.result(60)[0], Exception)
    # Threads may take turns.
    assert not isinstance(engine.predict([Request(2)])[0], Exception)


def test_the_sample_is_not_predicted_after_each_of_many_failures(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted: list[Any] = []
    outcomes: list[Any] = ["fine"]

    def predict(requests: Any, **_: Any) -> list[Any]:
        predicted.append(requests)
        return outcomes

    monkeypatch.setattr(engine, "predict", predict)
    for _ in range(50):
        engine.check_health()
    assert len(predicted) == HEALTH_CHECKS and not engine.device_failed


def test_the_sample_is_not_predicted_where_the_model_has_failed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted: list[Any] = []

    def predict(requests: Any, **_: Any) -> list[Any]:
        predicted.append(requests)
        return [InternalError(ValueError())]

    monkeypatch.setattr(engine, "predict", predict)
    for _ in range(3):
        engine.check_health()
    assert len(predicted) == 1 and engine.device_failed


def test_a_meter_counts_rows_and_times_each_stage(engine: Engine) -> None:
    meter = Meter()
    engine.predict([Request(number) for number in (1, 2, 3)], meter)
    assert (meter.counts["rows"], meter.counts["tokens"], meter.counts["slots"]) == (3, 12, 15)
    assert meter.padding_share == pytest.approx(0.2)
    assert {"parse", "encode", "forward", "decode"} <= set(meter.seconds)


def test_an_engine_reads_the_yaml_beside_the_checkpoint(tmp_path: Path) -> None:
    with refused(WrongConfig, "model-config.yaml"):
        Engine.load(tmp_path)
    (tmp_path / "model-config.yaml").write_text("handler: {mode: sequence_classifcation}")
    with refused(WrongConfig, "sequence_classification"):
        Engine.load(tmp_path)


class LoadedForExplanations(Summing):
    """A model that another one is loaded for, which takes longer than the deadline."""

    @property
    def embeddings(self) -> Sequence[torch.nn.Module]:
        raise AssertionError("this would load the other model, whatever the deadline is")

    def run_exclusively(self, function: Callable[[], Any], deadline: Any = None) -> Any:
        raise DeadlineExceeded


def test_what_explanations_need_is_loaded_within_their_time_limit(checkpoint: Checkpoints) -> None:
    settings = HandlerSection(mode="sequence_classification")
    parts = Checkpoint.read(checkpoint("sequence_classification"), settings)
    engine = Engine(Doubling(parts, settings), LoadedForExplanations())
    (outcome,) = engine.explain([Request(4)])
    assert isinstance(outcome, DeadlineExceeded)
