"""A batch with one request that is far too large: the others are answered, and it is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.errors import DeadlineExceeded, RequestError, RequestTooLarge
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.types.request import Request
from tests.clock import Clock
from tests.images import TEXTS
from tests.serving import Served, differences

Load = Callable[..., Served]
SLOW = ["question_answering", "sequence_classification", "token_classification"]
TEXT = "Nina sings in the bar. "
PARAMETERS: dict[str, dict[str, Any]] = {
    "question_answering": {},
    "sequence_classification": {},
    "token_classification": {"aggregation_strategy": "simple", "stride": 8},
}


def request(mode: str, text: str) -> Request:
    inputs = {"question": "Who?", "context": text} if mode == "question_answering" else text
    return Request(inputs, PARAMETERS[mode])


@pytest.fixture
def slow(served: Load, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Clock]]:
    """A model and a clock that each forward pass moves by one second: `slow(mode)`."""

    def load(mode: str, **handler: Any) -> tuple[Any, Clock]:
        model, clock = served(mode, max_batch_tokens=256, **handler), Clock()
        kind = type(model.engine.model)
        for name in ("forward", "forward_packed"):
            monkeypatch.setattr(kind, name, timed(getattr(kind, name), clock))
        return model.engine, clock

    return load


def timed(run: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    def forward(*arguments: Any) -> Any:
        clock.now += 1
        return run(*arguments)

    return forward


@pytest.mark.parametrize("mode", SLOW)
def test_requests_beside_a_giant_one_are_answered_and_it_is_out_of_time(
    slow: Any, mode: str
) -> None:
    engine, clock = slow(mode)
    small = [request(mode, TEXT), request(mode, TEXT * 2)]
    giant = [request(mode, TEXT * 15)] * 100
    expected = engine.predict(small)
    requests, owners = [small[0], *giant, small[1]], [0, *[1] * len(giant), 2]
    clock.now = 0
    first, *rest, last = engine.predict(requests, None, Deadline(20, clock), owners)
    assert [first, last] == expected
    assert 20 <= clock.now <= 22
    late = [each for each in rest if isinstance(each, DeadlineExceeded)]
    assert late
    assert "The time limit of the batch, 20 s (predict_timeout), passed" in str(late[-1])
    assert "send fewer or shorter texts" in str(late[-1])


@pytest.mark.parametrize("mode", ["question_answering", "token_classification"])
def test_one_text_of_too_many_windows_is_out_of_time_and_its_neighbours_are_not(
    slow: Any, mode: str
) -> None:
    engine, clock = slow(mode)
    small, giant = request(mode, TEXT), request(mode, TEXT * 400)
    expected = engine.predict([small, small])
    clock.now = 0
    first, late, last = engine.predict([small, giant, small], None, Deadline(9, clock))
    assert [first, last] == expected
    assert isinstance(late, DeadlineExceeded)
    assert " rows with " in str(late)


def test_texts_are_not_encoded_after_the_deadline(
    served: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, clock, encoded = served("sequence_classification").engine, Clock(), list[int]()
    encode = engine.task.encode

    def slowly(queries: Any) -> Any:
        encoded.append(len(queries))
        clock.now += 1
        return encode(queries)

    monkeypatch.setattr(engine.task, "encode", slowly)
    monkeypatch.setattr("hf_serve.handlers.batch.CHUNK_CHARACTERS", 1000)
    requests = [Request(TEXT)] * 2 + [Request(TEXT * 40, is_batch_item=True)] * 20
    owners = [0, 1, *[2] * 20]
    outcomes = engine.predict(requests, None, Deadline(5, clock), owners)
    assert not any(isinstance(each, DeadlineExceeded) for each in outcomes[:2])
    assert all(isinstance(each, DeadlineExceeded) for each in outcomes[-10:])
    assert sum(encoded) < 10
    assert clock.now <= 5


def test_a_batch_of_ordinary_size_is_encoded_and_run_at_once(slow: Any) -> None:
    engine, clock = slow("sequence_classification")
    engine.predict([request("sequence_classification", TEXT)] * 16)
    assert clock.now == 1


def test_all_rows_of_a_request_are_limited_together(served: Load) -> None:
    model = served("question_answering", max_request_rows=40)
    long = {"question": "Who?", "context": TEXT * 200}
    task = model.engine.task
    (windows,) = task.encode([task.parse(Request(long))])
    assert not isinstance(windows, RequestError)
    rows = len(windows)
    assert rows > 10
    (few, _), (many, refused), (other, _) = model.post(
        {"inputs": long}, {"inputs": [long] * 5}, {"inputs": long}
    )
    assert (few, many, other) == (200, 413, 200)
    assert refused["message"].startswith(
        f"The texts of this request make at least {5 * rows} rows, counting each window of a long"
        " text and each sequence of a prompt, and this model takes 40 a request; "
    )


def test_a_request_that_has_too_many_rows_is_not_encoded_further(
    served: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, encoded = served("question_answering", max_request_rows=40).engine, list[int]()
    encode = engine.task.encode

    def counted(queries: Any) -> Any:
        encoded.append(len(queries))
        return encode(queries)

    monkeypatch.setattr(engine.task, "encode", counted)
    monkeypatch.setattr("hf_serve.handlers.batch.CHUNK_TEXTS", 4)
    long = request("question_answering", TEXT * 200)
    outcomes = engine.predict([long] * 100, http_request_ids=[0] * 100)
    assert sum(encoded) == 4
    assert all(isinstance(each, RequestTooLarge) for each in outcomes)


def test_a_request_that_is_certain_to_have_too_many_rows_is_not_read_further(
    served: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = served("zero_shot_classification", max_rows=8, max_request_rows=8).engine
    parse, encode, parsed, encoded = engine.task.parse, engine.task.encode, [], list[int]()

    def recorded(request: Request) -> Any:
        parsed.append(request)
        return parse(request)

    def counted(queries: Any) -> Any:
        encoded.append(len(queries))
        return encode(queries)

    monkeypatch.setattr(engine.task, "parse", recorded)
    monkeypatch.setattr(engine.task, "encode", counted)
    pairs = Request(TEXT, {"candidate_labels": ["a", "b", "c", "d", "e"]}, is_batch_item=True)
    outcomes = engine.predict([pairs] * 200, http_request_ids=[0] * 200)
    assert all(isinstance(each, RequestTooLarge) for each in outcomes)
    # The second is one too many, and the texts that are read together end with it or soon after.
    assert sum(encoded) == 1
    assert 2 <= len(parsed) < 200


def test_each_sequence_of_a_prompt_is_a_row(served: Load) -> None:
    model = served("text_generation", max_request_rows=40)
    sampling = {"do_sample": True, "max_new_tokens": 2}
    many = {"inputs": ["Ada"] * 3, "parameters": {**sampling, "num_return_sequences": 20}}
    few = {"inputs": ["Ada"] * 3, "parameters": {**sampling, "num_return_sequences": 4}}
    ((refused, sentence), (answered, _)) = model.post(many, few)
    assert (refused, answered) == (413, 200)
    assert "make at least 60 rows" in sentence["message"]


def test_the_rows_of_different_requests_are_not_limited_together(served: Load) -> None:
    model = served("sequence_classification", max_request_rows=2)
    assert isinstance(
        model.engine.predict([Request("a")] * 3, http_request_ids=[0, 0, 0])[0], RequestTooLarge
    )
    assert model.engine.predict([Request("a")] * 3)[0]
    statuses = [status for status, _ in model.post(*[{"inputs": ["a", "b"]}] * 3)]
    assert statuses == [200] * 3


def test_outputs_become_results_before_the_next_texts_run(
    slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, clock = slow("sequence_classification")
    kind, decoded_at = type(engine.task), []
    decode = kind.decode

    def recorded(*arguments: Any) -> Any:
        decoded_at.append(clock.now)
        return decode(*arguments)

    monkeypatch.setattr(kind, "decode", recorded)
    engine.predict([request("sequence_classification", TEXT * 15)] * 60)
    assert len(decoded_at) == 60
    assert min(decoded_at) < max(decoded_at) == clock.now


def test_a_text_without_tokens_is_refused_and_has_no_outputs_of_its_neighbours(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    mode, folder = "sentence_embedding", tmp_path / "model"
    shutil.copytree(checkpoint(mode), folder)
    changes: dict[str, dict[str, Any]] = {
        "tokenizer.json": {"post_processor": None},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    }
    for name, change in changes.items():
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps({**document, **change}), encoding="utf-8")
    model, invisible = Served(folder, mode), "\u200b"
    assert model.engine.model.capabilities.supports_packing
    ((status, answers),) = model.post({"inputs": [invisible, "Ada.", invisible]})
    assert status == 200
    assert [each["code"] for each in (answers[0], answers[2])] == [400, 400]
    assert not differences(answers[1], model.ask("Ada."), 1e-5)
    assert model.refuse(invisible)[1].startswith("A text of this request has no tokens")


@pytest.mark.parametrize(
    ("slow", "answered"),
    [
        pytest.param("read", 16, id="the files that are read before half of the time has passed"),
        pytest.param("decode", 22, id="the results that are written until shortly after it"),
    ],
)
def test_files_that_take_long_are_out_of_time(
    served: Load, monkeypatch: pytest.MonkeyPatch, slow: str, answered: int
) -> None:
    model, clock = served("image_classification"), Clock()
    one = Request(TEXTS[0])
    (expected,) = model.engine.predict([one])
    original = getattr(model.engine.task, slow)

    def timed(*arguments: Any) -> Any:
        clock.now += 1
        return original(*arguments)

    monkeypatch.setattr(model.engine.task, slow, timed)
    outcomes = model.engine.predict([one] * 40, None, Deadline(20, clock), [0] * 40)
    late = [each for each in outcomes if isinstance(each, DeadlineExceeded)]
    assert len(late) == 40 - answered
    assert not differences(outcomes[:answered], [expected] * answered, 1e-4)
