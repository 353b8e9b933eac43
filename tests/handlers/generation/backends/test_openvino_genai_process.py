"""The process of openvino-genai: when a text begins beside running ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

# Not there beside the newest transformers.
openvino_genai = pytest.importorskip("openvino_genai")

from hf_serve.handlers.generation.backends.openvino_genai_process import Fillers, Process  # noqa: E402
from hf_serve.handlers.generation.backends.prefixes import MIN_TOKENS  # noqa: E402
from tests.sentences import refused  # noqa: E402

pytestmark = pytest.mark.openvino


class Pipeline:
    """A pipeline whose texts never end; it notes what it is asked to do."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def add_request(self, number: int, _tokens: Any, _config: Any) -> Any:
        self.log.append(f"text {number}")
        running = openvino_genai.GenerationStatus.RUNNING
        return SimpleNamespace(
            get_status=lambda: running, can_read=lambda: False, cancel=lambda: None
        )

    def has_non_finished_requests(self) -> bool:
        return bool(self.log)

    def step(self) -> None:
        self.log.append("step")


class Channel:
    """A worker that sends commands before each step, and ends."""

    def __init__(self, turns: Sequence[Sequence[Any]]) -> None:
        self._turns = iter(turns)

    def commands(self, *, wait: bool) -> Iterator[Any]:
        turn = next(self._turns, None)
        if turn is None:
            raise EOFError
        yield from turn


def text(
    number: int, new_tokens: int, *, in_parts: bool = False, prompt: Sequence[int] = (1,)
) -> dict[str, Any]:
    settings = {"max_new_tokens": new_tokens}
    return {"start": number, "prompt": list(prompt), "settings": settings, "in_parts": in_parts}


def steps_before(
    number: int,
    turns: Sequence[Sequence[Any]],
    *,
    splits: bool = False,
    max_running: int = 8,
    shares_prefixes: bool = False,
) -> int:
    """Return after how many steps a text begins, when commands come before each of them."""
    pipeline, channel = Pipeline(), Channel([*turns, *([()] * 20)])
    process: Any = Process
    with pytest.raises(EOFError):
        alone = Fillers(pipeline, 1, 8)
        process(
            channel,
            pipeline,
            None,
            max_running,
            splits_prompts=splits,
            shares_prefixes=shares_prefixes,
            fillers=alone,
        ).run()
    return pipeline.log[: pipeline.log.index(f"text {number}")].count("step")


def end(number: int) -> dict[str, int]:
    return {"cancel": number}


RUNNING = text(1, 64)


def test_a_text_waits_for_others_for_a_sixteenth_of_its_tokens_and_four_steps_at_most() -> None:
    assert steps_before(2, [[RUNNING], [text(2, 8)]]) == 1
    assert steps_before(2, [[RUNNING], [text(2, 40)]]) == 1 + 2
    assert steps_before(2, [[RUNNING], [text(2, 2_000)]]) == 1 + 4


def test_no_text_waits_where_none_runs() -> None:
    assert steps_before(2, [[], [text(2, 64)]]) == 0


def test_texts_that_wait_begin_together_when_the_first_has_waited() -> None:
    turns = [[RUNNING], [text(2, 64)], [], [text(3, 64)]]
    assert steps_before(2, turns) == steps_before(3, turns) == 1 + 4


def test_a_stream_does_not_wait_nor_do_the_texts_beside_it() -> None:
    turns = [[RUNNING], [text(2, 64)], [text(3, 64, in_parts=True)]]
    assert steps_before(2, turns) == steps_before(3, turns) == 2


def test_no_text_waits_where_prompts_are_split() -> None:
    assert steps_before(2, [[RUNNING], [text(2, 64)]], splits=True) == 1


@pytest.mark.parametrize(("shares", "steps"), [(False, 0), (True, 2)])
def test_a_text_waits_until_the_beginning_that_it_shares_is_read(shares: bool, steps: int) -> None:
    """Here the prompt that begins alike is never read, and cancelled after two steps."""
    beginning = range(MIN_TOKENS)
    others = [text(2, 8, prompt=[*beginning, 2]), text(3, 8, prompt=[7, *beginning])]
    turns = [[text(1, 8, prompt=beginning), *others], [], [end(1)]]
    found = [steps_before(number, turns, splits=True, shares_prefixes=shares) for number in (2, 3)]
    assert found == [steps, 0]


@pytest.mark.parametrize("splits", [True, False])
def test_a_text_beyond_the_limit_begins_after_the_step_that_forgets_a_cancelled_one(
    splits: bool,
) -> None:
    turns = [[RUNNING, text(2, 8, in_parts=True)], [], [end(1)]]
    assert steps_before(2, turns, splits=splits, max_running=1) == 3


def test_a_text_that_is_cancelled_while_it_waits_does_not_begin() -> None:
    turns = [[RUNNING], [text(2, 64)], [end(2)], [text(3, 8)]]
    assert steps_before(3, turns) == 3
    with refused(ValueError):
        steps_before(2, turns)


def test_a_ping_is_answered_between_two_steps() -> None:
    """So that a step that does not end gives no sign of life."""
    pipeline = Pipeline()
    channel: Any = Channel([[RUNNING], [], [{"ping": True}], []])
    channel.send = lambda event: pipeline.log.append(str(event))
    fillers: Any = Fillers(pipeline, 1, 8)
    process = Process(channel, pipeline, None, 8, splits_prompts=False, fillers=fillers)
    with pytest.raises(EOFError):
        process.run()
    assert pipeline.log[1:] == ["step", "step", str({"pong": True}), "step", "step"]


class Handle:
    """A text of a pipeline."""

    def __init__(self) -> None:
        self.status = openvino_genai.GenerationStatus.RUNNING

    def get_status(self) -> Any:
        return self.status

    def cancel(self) -> None:
        self.status = openvino_genai.GenerationStatus.CANCEL


class Texts:
    """A pipeline that keeps the texts it is asked for, by their numbers."""

    def __init__(self) -> None:
        self.handles: dict[int, Handle] = {}

    def add_request(self, number: int, _tokens: Any, config: Any) -> Handle:
        assert config.max_new_tokens == 8
        assert config.ignore_eos
        assert number not in self.handles
        self.handles[number] = Handle()
        return self.handles[number]

    @property
    def running(self) -> list[Handle]:
        status = openvino_genai.GenerationStatus.RUNNING
        return [handle for handle in self.handles.values() if handle.status == status]


def test_a_text_has_as_many_fillers_as_there_are_threads_without_one() -> None:
    texts = Texts()
    fillers = Fillers(texts, 3, 8)
    for running, expected in ((1, 2), (1, 2), (2, 1), (3, 0), (32, 0), (1, 2)):
        fillers.add_to(running)
        assert len(texts.running) == expected


def test_a_filler_that_has_ended_is_followed_by_another_one() -> None:
    texts = Texts()
    fillers = Fillers(texts, 2, 8)
    fillers.add_to(1)
    texts.running[0].status = openvino_genai.GenerationStatus.FINISHED
    fillers.add_to(1)
    assert len(texts.running) == 1
    assert len(texts.handles) == 2


def test_no_text_has_fillers_where_one_runs_as_several_do() -> None:
    texts = Texts()
    Fillers(texts, 1, 8).add_to(1)
    assert not texts.handles
