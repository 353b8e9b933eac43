"""openvino-genai's engine: the texts of `generate`, for each setting that both have."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import (
    BadRequest,
    DeadlineExceeded,
    EngineFailed,
    Overloaded,
    RequestTooLarge,
    Unprocessable,
    WrongCheckpoint,
)
from hf_serve.handlers.formats.openvino import LONGEST_WHOLE_PROMPT
from hf_serve.handlers.generation.backends.base import BLOCK, NewTokens, RunningSequence
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.types.request import Request, TextStream
from tests import tiny
from tests.continuous import wait_for_texts
from tests.sentences import refused
from tests.serving import SequenceStream, differences

# The engine is another process.
pytestmark = [pytest.mark.openvino, pytest.mark.server]

MODE = "text_generation"
PROMPT = "Once upon a time"


def config(**handler: Any) -> ModelConfig:
    return ModelConfig.parse(
        {"continuousBatching": True, "handler": {"mode": MODE, "save_mode": "openvino", **handler}}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with its exported model."""
    folder = tiny.write(tmp_path_factory.mktemp("genai"), MODE)
    formats.export(folder, config(), folder)
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return Engine.load(folder, config(max_num_seqs=4, max_waiting=4))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Engine:
    return Engine.load(folder, ModelConfig.parse({"handler": {"mode": MODE}}))


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_new_tokens": 12, "details": True},
        {"max_new_tokens": 1, "details": True},
        {"max_new_tokens": 40, "stop": ["e"], "details": True},
        {"max_new_tokens": 20, "repetition_penalty": 1.3},
        {"max_new_tokens": 20, "min_new_tokens": 15},
        {"max_new_tokens": 30, "frequency_penalty": 1.5, "presence_penalty": -0.5},
        {"max_new_tokens": 8, "details": True, "stop": ["e"]},
        {"max_new_tokens": 8, "num_beams": 3},
        {"max_new_tokens": 8, "num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.5},
        {"max_new_tokens": 8, "num_beams": 2, "early_stopping": True, "stop": ["a"]},
        {"max_new_tokens": 8, "do_sample": True, "top_k": 1},
    ],
)
def test_texts_are_those_of_generate(
    engine: Engine, reference: Engine, parameters: dict[str, Any]
) -> None:
    request = Request(PROMPT, parameters)
    found, expected = engine.predict([request]), reference.predict([request])
    assert not differences(found, expected, 1e-4)


def test_texts_side_by_side_are_those_of_generate_where_prompts_are_read_in_parts(
    tmp_path: Path,
) -> None:
    """The other tests have a model of short texts, whose prompts are read in steps of their own."""
    positions = 2 * LONGEST_WHOLE_PROMPT
    folder = tiny.write(tmp_path / "model", MODE, n_positions=positions)
    tokenizer = folder / "tokenizer_config.json"
    settings = {**json.loads(tokenizer.read_bytes()), "model_max_length": positions}
    tokenizer.write_text(json.dumps(settings), encoding="utf-8")
    formats.export(folder, config(), folder)
    engine = Engine.load(folder, config(max_num_seqs=4, max_waiting=4, cache_size=0.1))
    reference = Engine.load(folder, ModelConfig.parse({"handler": {"mode": MODE}}))
    lengths = ((1, 40), (2, 8), (90, 12), (1, 30), (5, 20), (40, 24))
    requests = [Request(PROMPT * n, {"max_new_tokens": tokens}) for n, tokens in lengths]
    with ThreadPoolExecutor(len(requests)) as clients:
        found = list(clients.map(lambda request: engine.predict([request])[0], requests))
    assert not differences(found, reference.predict(requests), 1e-4)


@pytest.mark.parametrize("in_parts", [False, True])
def test_texts_that_begin_alike_and_share_a_cache_are_those_of_generate(
    folder: Path, reference: Engine, *, in_parts: bool
) -> None:
    """They come three times, and the first ones fill the cache."""
    engine = Engine.load(
        folder,
        config(
            enable_prefix_caching=True,
            enable_chunked_prefill=in_parts,
            max_num_batched_tokens=64 if in_parts else None,
        ),
    )
    requests = [
        Request(f"{PROMPT} there were foxes in the woods " * (number % 3 + 1) + str(number))
        for number in range(12)
    ]
    expected = reference.predict(requests)
    with ThreadPoolExecutor(len(requests)) as clients:
        for _ in range(3):
            found = list(clients.map(lambda request: engine.predict([request])[0], requests))
            assert not differences(found, expected, 1e-4)


@pytest.mark.parametrize("tokens", [BLOCK, 2 * BLOCK])
def test_a_prompt_of_whole_blocks_is_shared_with_a_running_text(
    folder: Path, reference: Engine, tokens: int
) -> None:
    engine = Engine.load(folder, config(enable_prefix_caching=True))
    tokenizer = reference.task.checkpoint.tokenizer
    prompt = tokenizer.decode(tokenizer(f"{PROMPT} there were foxes " * 9)["input_ids"][:tokens])
    assert len(tokenizer(prompt)["input_ids"]) == tokens
    requests = [Request(prompt, {"max_new_tokens": count}) for count in (50, 12, 12)]
    expected = reference.predict(requests)
    with ThreadPoolExecutor(len(requests)) as clients:
        for _ in range(2):
            found = list(clients.map(lambda request: engine.predict([request])[0], requests))
            assert not differences(found, expected, 1e-4)


def test_sampling_with_a_seed_is_repeatable_and_each_sequence_differs(engine: Engine) -> None:
    parameters = {"do_sample": True, "seed": 3, "num_return_sequences": 3, "max_new_tokens": 12}
    first: Any = engine.predict([Request(PROMPT, parameters)])[0]
    assert engine.predict([Request(PROMPT, parameters)]) == [first]
    assert len({text["generated_text"] for text in first}) == 3


def test_sampling_without_a_seed_differs_from_text_to_text(engine: Engine) -> None:
    parameters = {"do_sample": True, "num_return_sequences": 3, "max_new_tokens": 12}
    texts: Any = engine.predict([Request(PROMPT, parameters)])[0]
    assert len({text["generated_text"] for text in texts}) == 3


def test_a_stream_has_the_whole_text(engine: Engine, reference: Engine) -> None:
    parts: list[str] = []
    parameters = {"max_new_tokens": 24, "return_full_text": False}
    engine.predict(
        [Request(PROMPT, parameters, stream=TextStream(lambda text, _: parts.append(text)))]
    )
    expected: Any = reference.predict([Request(PROMPT, parameters)])[0]
    assert expected[0]["generated_text"].startswith("".join(parts))
    assert len(parts) > 1


def test_the_texts_of_one_prompt_are_sent_side_by_side(engine: Engine) -> None:
    parts: list[tuple[int, str]] = []
    sampled = {"do_sample": True, "seed": 3, "num_return_sequences": 3, "max_new_tokens": 12}
    parameters = {**sampled, "return_full_text": False}
    expected: Any = engine.predict([Request(PROMPT, parameters)])[0]
    found: Any = engine.predict(
        [Request(PROMPT, parameters, stream=SequenceStream(parts, len(expected)))]
    )[0]
    assert found == expected
    numbers = [number for number, _ in parts]
    assert numbers != sorted(numbers)
    for number, text in enumerate(expected):
        own = "".join(new for other, new in parts if other == number)
        assert own and text["generated_text"].startswith(own)


def load(folder: Path, **handler: Any) -> tuple[Engine, psutil.Process]:
    """Return an engine and its process."""
    before = set(psutil.Process().children())
    engine = Engine.load(folder, config(**handler))
    (process,) = set(psutil.Process().children()) - before
    return engine, process


def test_no_more_texts_run_at_once_than_the_yaml_says(folder: Path) -> None:
    engine, process = load(folder, max_num_seqs=2, max_waiting=6, cache_size=0.1)
    seen: list[tuple[float, float]] = []

    def note(_text: str, _last: Any) -> None:
        metrics = engine.load_metrics
        seen.append((metrics["running_texts"], metrics["waiting_texts"]))

    def write(_: int) -> Any:
        request = Request(PROMPT, {"max_new_tokens": 12}, stream=TextStream(note))
        return engine.predict([request])[0]

    process.suspend()
    with ThreadPoolExecutor(6) as clients:
        results = clients.map(write, range(6))
        wait_for_texts(engine, 6)
        process.resume()
        texts = list(results)
    assert texts == texts[:1] * 6
    running, waiting = zip(*seen, strict=True)
    assert max(running) == 2
    assert max(waiting) > 0


def test_a_text_that_ends_at_a_stop_string_makes_room_for_the_next(
    folder: Path, reference: Engine
) -> None:
    engine = Engine.load(folder, config(max_num_seqs=1, max_waiting=8, cache_size=0.1))
    request = Request(PROMPT, {"max_new_tokens": 60, "stop": ["e"]})
    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(lambda _: engine.predict([request])[0], range(8)))
    assert found == reference.predict([request]) * 8


NO_BIAS = {"logit_bias": {"3": 1e-9}}
LACKING = [
    ("typical_p", 0.5),
    ("no_repeat_ngram_size", 2),
    ("logit_bias", {5: 1.0}),
    ("top_n_tokens", 2),
    ("prompt_lookup_num_tokens", 3),
    ("allowed_token_ids", [5, 6, 7]),
    ("bad_words", ["a"]),
    ("decoder_input_details", True),
]


@pytest.fixture(scope="module")
def alone(folder: Path) -> Engine:
    """An engine of an archive without the weights of the checkpoint."""
    return Engine.load(folder, config(captum_explanation=False))


@pytest.mark.parametrize(("name", "value"), LACKING)
def test_what_the_engine_lacks_is_refused_by_name_without_the_weights(
    alone: Engine, name: str, value: Any
) -> None:
    [outcome] = alone.predict([Request(PROMPT, {"do_sample": True, name: value})])
    assert isinstance(outcome, Unprocessable)
    assert str(outcome).startswith(f"{name} {json.dumps(value)} is not supported by ")


@pytest.mark.parametrize(
    "parameters",
    [
        *({name: value} for name, value in LACKING),
        {"logit_bias": {292: -100.0}, "details": True, "top_n_tokens": 3, "stop": ["e"]},
        {"decoder_input_details": True, "details": True, "max_new_tokens": 0},
        {"decoder_input_details": True, "details": True, "top_n_tokens": 2},
        {"num_beams": 2, "frequency_penalty": 1.0},
        {"no_repeat_ngram_size": 2, "num_beams": 2},
        {"min_new_tokens": 4, "grammar": {"type": "regex", "value": "[a-z]{5,9}"}},
    ],
)
def test_what_the_engine_lacks_is_generated_by_the_checkpoint(
    engine: Engine, reference: Engine, parameters: dict[str, Any]
) -> None:
    request = Request(PROMPT, {"max_new_tokens": 8, **parameters})
    found, expected = engine.predict([request]), reference.predict([request])
    assert not any(isinstance(outcome, Exception) for outcome in found)
    assert not differences(found, expected, 1e-4)


def test_the_description_says_what_is_generated_how(
    engine: Engine, alone: Engine, reference: Engine
) -> None:
    names = sorted(name for name, _ in LACKING)
    found = [each.describe().as_json()["generation"] for each in (engine, alone, reference)]
    assert [tuple(each.values()) for each in found] == [
        ("openvino-genai", names, ()),
        ("openvino-genai", (), names),
        ("transformers", (), ()),
    ]


def test_engine_and_checkpoint_share_the_texts_of_a_request(
    engine: Engine, reference: Engine
) -> None:
    """Those of each keep their places, and one that neither generates is alone with its error."""
    requests = [
        Request(PROMPT, {"max_new_tokens": 6}),
        Request(PROMPT, {"max_new_tokens": 6, "logit_bias": {"292": -100}}),
        Request("a b", {"max_new_tokens": 6}),
        Request(PROMPT, {"max_new_tokens": 6, "top_n_tokens": 2, "num_beams": 2}),
    ]
    found, expected = engine.predict(requests), reference.predict(requests)
    assert isinstance(found[3], Unprocessable)
    assert not differences(found[:3], expected[:3], 1e-4)


def test_a_text_is_the_same_with_settings_that_the_engine_lacks_and_no_effect(
    engine: Engine,
) -> None:
    """Greedy tokens and their log probabilities are those of both, sampled or not."""
    greedy = {"max_new_tokens": 12, "details": True}
    sampled = {**greedy, "do_sample": True, "top_k": 1, "temperature": 0.3}
    for parameters in (greedy, sampled, {**greedy, "repetition_penalty": 1.5}):
        requests = [Request(PROMPT, {**parameters, **bias}) for bias in ({}, NO_BIAS)]
        plain, biased = engine.predict(requests)
        assert not differences(plain, biased, 1e-4)


def test_log_probabilities_of_sampled_texts_are_those_of_the_model(
    engine: Engine, reference: Engine
) -> None:
    """Whatever the temperature and the penalties are, in the engine and in the checkpoint."""
    parameters = {"max_new_tokens": 8, "details": True, "do_sample": True, "temperature": 0.3}
    parameters |= {"frequency_penalty": 0.5, "seed": 1}
    prompt = engine.task.checkpoint.tokenizer(PROMPT)["input_ids"]
    for other in ({}, {"logit_bias": {"3": 1}}):
        outcome: Any = engine.predict([Request(PROMPT, {**parameters, **other})])[0]
        tokens = outcome[0]["details"]["tokens"]
        ids = torch.tensor([[*prompt, *(token["id"] for token in tokens)]])
        logits = reference.model.forward({"input_ids": ids})["logits"]
        scores = logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        expected = scores.gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()
        assert [token["logprob"] for token in tokens] == pytest.approx(expected, abs=1e-3)


def test_a_stream_of_the_checkpoint_has_the_whole_text(engine: Engine, reference: Engine) -> None:
    parts: list[str] = []
    parameters = {"max_new_tokens": 12, "logit_bias": {"292": -100}, "return_full_text": False}
    stream = TextStream(lambda text, _: parts.append(text))
    engine.predict([Request(PROMPT, parameters, stream=stream)])
    expected: Any = reference.predict([Request(PROMPT, parameters)])[0]
    assert expected[0]["generated_text"].startswith("".join(parts))
    assert len(parts) > 1


def test_texts_of_the_checkpoint_count_with_those_of_the_engine(engine: Engine) -> None:
    """Neither starts a text beyond the limit of both together."""
    lacking = {"logit_bias": {"292": -100}, "do_sample": True}
    engine.predict([Request(PROMPT, {"max_new_tokens": 1, **lacking})])
    begun, may_end = threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        begun.set()
        may_end.wait(60)

    # Long enough that it runs until the others are refused, also on a slow machine.
    running = Request(PROMPT, {"max_new_tokens": 100, **lacking}, stream=TextStream(hold))
    thread = threading.Thread(target=engine.predict, args=([running],))
    thread.start()
    assert begun.wait(60)
    full = {"do_sample": True, "num_return_sequences": 8, "max_new_tokens": 2}
    refused = [engine.predict([Request(PROMPT, {**full, **more})])[0] for more in ({}, lacking)]
    metrics = dict(engine.load_metrics)
    may_end.set()
    thread.join(60)
    assert [type(outcome) for outcome in refused] == [Overloaded, Overloaded]
    assert metrics["running_texts"] == 1


def test_a_text_of_the_checkpoint_out_of_time_leaves_no_slot(engine: Engine) -> None:
    lacking = {"max_new_tokens": 100, "logit_bias": {"292": -100}}
    [outcome] = engine.predict([Request(PROMPT, lacking)], deadline=Deadline(0.0))
    assert isinstance(outcome, DeadlineExceeded)
    assert engine.load_metrics["waiting_texts"] == 0


def test_explanations_and_texts_share_the_checkpoint(engine: Engine, reference: Engine) -> None:
    """Which computes one of them at a time: an explanation has hooks on the layers."""
    lacking = Request(PROMPT, {"max_new_tokens": 8, "logit_bias": {"292": -100}})
    explained = Request(PROMPT, {"max_new_tokens": 3, "method": "layer_integrated_gradients"})
    expected = reference.predict([lacking]), reference.explain([explained])
    with ThreadPoolExecutor(4) as threads:
        texts = [threads.submit(engine.predict, [lacking]) for _ in range(3)]
        explanation = threads.submit(engine.explain, [explained])
        found = [text.result() for text in texts]
    assert not differences(found, [expected[0]] * 3, 1e-4)
    assert not differences(explanation.result(), expected[1], 1e-4)


def test_requests_beyond_the_limit_are_refused_and_leave_the_others(
    engine: Engine, reference: Engine
) -> None:
    """A prompt whose texts do not all fit starts none of them."""
    sampled = {"do_sample": True, "num_return_sequences": 32, "max_new_tokens": 40}
    [outcome] = engine.predict([Request(PROMPT, sampled)])
    assert isinstance(outcome, RequestTooLarge)
    greedy = Request(PROMPT, {"max_new_tokens": 4})
    assert engine.predict([greedy]) == reference.predict([greedy])


@pytest.mark.parametrize("other", [{"do_sample": True}, {"frequency_penalty": 1.0}])
def test_beams_are_refused_with_what_the_engine_lacks_without_the_weights(
    alone: Engine, other: dict[str, Any]
) -> None:
    [outcome] = alone.predict([Request(PROMPT, {"num_beams": 2, **other})])
    assert isinstance(outcome, Unprocessable)
    assert "num_beams 2" in str(outcome)


@pytest.mark.parametrize("value", [2**31, 2**70, 1e30])
def test_a_number_that_is_too_large_ends_no_engine(engine: Engine, value: float) -> None:
    [outcome] = engine.predict([Request(PROMPT, {"do_sample": True, "top_k": value})])
    assert isinstance(outcome, BadRequest)
    assert not engine.device_failed


def test_what_the_engine_itself_refuses_is_the_error_of_its_text(engine: Engine) -> None:
    [outcome] = engine.predict([Request(PROMPT, {"min_new_tokens": 100})])
    assert isinstance(outcome, Unprocessable)
    assert "/" not in str(outcome)
    assert not engine.device_failed


@pytest.mark.nightly
def test_a_checkpoint_without_an_end_token_generates(tmp_path: Path) -> None:
    tiny.write(tmp_path, MODE, eos_token_id=None)
    formats.export(tmp_path, config(), tmp_path)
    parameters = {"max_new_tokens": 5, "details": True}
    engine = Engine.load(tmp_path, config())
    outcome: Any = engine.predict([Request(PROMPT, parameters)])[0]
    assert outcome[0]["details"]["generated_tokens"] == 5
    [refused] = engine.predict([Request(PROMPT, {"grammar": {"type": "regex", "value": "a"}})])
    assert isinstance(refused, Unprocessable)
    assert "no end token" in str(refused)


@pytest.mark.parametrize(
    ("parameters", "in_parts"),
    [({}, False), ({"details": True}, False), ({"stop": ["no such text"]}, True)],
)
def test_tokens_come_step_by_step_only_where_they_are_looked_at(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any], in_parts: bool
) -> None:
    received: list[int] = []
    receive = RunningSequence.receive

    def record(text: RunningSequence, new: NewTokens) -> None:
        received.append(sum(map(len, new.sequences)))
        receive(text, new)

    monkeypatch.setattr(RunningSequence, "receive", record)
    engine.predict([Request(PROMPT, {"max_new_tokens": 5, "min_new_tokens": 5, **parameters})])
    assert received == ([1] * 5 if in_parts else [0, 5])


def test_a_stream_whose_receiver_fails_ends_its_text_and_no_other(engine: Engine) -> None:
    def fail(_text: str, _tokens: Any) -> None:
        raise BrokenPipeError

    request = Request(PROMPT, {"max_new_tokens": 500}, stream=TextStream(fail))
    [outcome] = engine.predict([request])
    assert isinstance(outcome, Exception)
    assert engine.load_metrics["running_texts"] == 0
    assert not isinstance(engine.predict([Request(PROMPT, {"max_new_tokens": 4})])[0], Exception)


def test_a_text_out_of_time_ends(engine: Engine) -> None:
    [outcome] = engine.predict([Request(PROMPT, {"max_new_tokens": 100})], deadline=Deadline(0.0))
    assert isinstance(outcome, DeadlineExceeded)
    assert engine.load_metrics["running_texts"] == engine.load_metrics["waiting_texts"] == 0


def test_a_prompt_that_does_not_fit_in_the_cache_is_refused(folder: Path) -> None:
    small = Engine.load(folder, config(cache_size=0.00002))
    [outcome] = small.predict([Request("a b c d " * 12, {"max_new_tokens": 60})])
    assert isinstance(outcome, RequestTooLarge)


def test_a_generation_config_that_the_engine_would_ignore_stops_the_load(
    folder: Path, tmp_path: Path
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    content = '{"suppress_tokens": [3]}'
    (tmp_path / "generation_config.json").write_text(content, encoding="utf-8")
    with refused(WrongCheckpoint, "generation_config.json", "suppress_tokens"):
        Engine.load(tmp_path, config())


@pytest.fixture
def own_engine(folder: Path) -> Iterator[tuple[Engine, psutil.Process]]:
    """An engine of the test's own, and its process."""
    engine, process = load(folder)
    yield engine, process
    del engine
    gc.collect()


def test_the_end_of_the_process_fails_its_texts_and_later_ones(
    own_engine: tuple[Engine, psutil.Process],
) -> None:
    engine, process = own_engine
    begun = threading.Event()
    stream = TextStream(lambda *_: begun.set())
    threading.Thread(target=_end_after, args=(begun, process)).start()
    running = Request(PROMPT, {"max_new_tokens": 120}, stream=stream)
    outcomes = [engine.predict([request])[0] for request in (running, Request(PROMPT))]
    assert isinstance(outcomes[1], EngineFailed)
    assert engine.device_failed


def _end_after(event: threading.Event, process: psutil.Process) -> None:
    event.wait(60)
    process.kill()


def test_a_process_that_is_stopped_is_replaced_with_its_worker(folder: Path) -> None:
    before = set(psutil.Process().children())
    document = config().model_dump(by_alias=True, exclude_unset=True)
    engine = Engine.load(folder, ModelConfig.parse({**document, "responseTimeout": 5}))
    (process,) = set(psutil.Process().children()) - before
    begun = threading.Event()
    stream = TextStream(lambda *_: begun.set())
    with ThreadPoolExecutor() as clients:
        running = Request(PROMPT, {"max_new_tokens": 120}, stream=stream)
        clients.submit(engine.predict, [running])
        assert begun.wait(60)
        process.suspend()
        process.wait(60)
    [later] = engine.predict([Request(PROMPT)])
    assert isinstance(later, EngineFailed) and engine.device_failed
    assert engine.model.has_failed


def test_the_process_ends_with_the_model(folder: Path) -> None:
    engine, process = load(folder)
    del engine
    gc.collect()
    process.wait(30)


@pytest.mark.parametrize("asked", [False, True])
def test_a_stream_has_log_probabilities_only_where_they_are_asked_for(
    engine: Engine, *, asked: bool
) -> None:
    received: list[Any] = []
    stream = TextStream(lambda _, tokens: received.extend(tokens))
    parameters = {"max_new_tokens": 8, "logprobs": asked}
    engine.predict([Request("Once upon", parameters, stream=stream)])
    assert bool(received) == asked
