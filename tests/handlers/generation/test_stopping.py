from __future__ import annotations

from typing import Any

import pytest
import torch

from hf_serve.handlers.generation.detokenization import DecoderState, IncrementalDecoder
from hf_serve.handlers.generation.growing import Growing
from hf_serve.handlers.generation.stopping import (
    BeamCriterion,
    DeadlineCriterion,
    GenerationState,
    RowCriterion,
    RowTexts,
    StopTracker,
    TokenRecord,
    find_stop,
)
from hf_serve.handlers.process.deadline import NO_DEADLINE, Deadline
from hf_serve.handlers.types.request import GeneratedToken
from tests.handlers.generation.test_detokenization import encode, tokenizer
from tests.serving import stream_into

__all__ = ["tokenizer"]  # a fixture

STORY = "the fox lives near the river and sang to the moon"


def continuation(
    tokenizer: Any, *stops: str, ends: frozenset[int] = frozenset(), most: int = 99
) -> StopTracker:
    return StopTracker(
        IncrementalDecoder(tokenizer), encode(tokenizer, "once upon a time"), stops, ends, most
    )


def facts(text: GenerationState) -> tuple[str, int, str | None]:
    return text.text, text.tokens, text.finish_reason


@pytest.mark.parametrize(
    ("stops", "found"),
    [
        ((), None),
        (("sang", "fox"), (2, "fox")),
        (("fox", "sang"), (2, "fox")),
        (("wolf",), None),
        (("a",), (0, "a")),
    ],
)
def test_a_text_ends_before_the_first_stop_string(stops: tuple[str, ...], found: Any) -> None:
    assert find_stop("a fox sang", stops) == found


@pytest.mark.parametrize("stop", [" the", " near the", "r and", " sang to", "ox l", "moon", "x"])
def test_a_stop_string_ends_a_text_at_the_token_that_completes_it(
    tokenizer: Any, stop: str
) -> None:
    """Also one that begins with a space, or that begins and ends within tokens."""
    tokens = encode(tokenizer, STORY)
    whole = continuation(tokenizer).read(tokens).text
    found = continuation(tokenizer, "never", stop).read([*tokens, *tokens])
    before = whole.partition(stop)[0]
    texts = [continuation(tokenizer).read(tokens[:end]).text for end in range(len(tokens) + 1)]
    complete = next(end for end, text in enumerate(texts) if stop in text)
    assert facts(found) == (before, complete, "stop_sequence")


def test_the_prompt_has_no_stop_string(tokenizer: Any) -> None:
    tokens = encode(tokenizer, "a fox")
    assert continuation(tokenizer, "upon", "time").read(tokens).finish_reason is None


def test_a_stop_string_may_begin_with_the_space_before_a_full_stop(tokenizer: Any) -> None:
    tokens = encode(tokenizer, "a fox .")
    stop = continuation(tokenizer).read(tokens).text[-2:]
    assert stop in (" .", "x.")  # WordPiece's decoder writes no space there
    assert continuation(tokenizer, stop).read(tokens).finish_reason == "stop_sequence"


def test_what_ends_a_text_first_is_its_finish_reason(tokenizer: Any) -> None:
    tokens = encode(tokenizer, STORY)
    end, after = frozenset([tokens[3]]), tokens[4:]
    text = continuation(tokenizer, ends=end).read([*tokens[:4], *after])
    assert facts(text)[1:] == (4, "eos_token")
    assert continuation(tokenizer, ends=end, most=3).read(tokens).finish_reason == "length"
    stop = continuation(tokenizer).read(tokens[:3]).text[-2:]
    both = continuation(tokenizer, stop, ends=end, most=3).read(tokens)
    assert facts(both)[1:] == (3, "stop_sequence")


def test_a_text_is_the_same_token_by_token_and_at_once(tokenizer: Any) -> None:
    tokens = encode(tokenizer, STORY)
    for most in (5, 99):
        followed = continuation(tokenizer, ends=frozenset([tokens[8]]), most=most)
        text = followed.start()
        for token in tokens:
            text = followed.add(text, token)
        assert facts(text) == facts(followed.read(tokens))


def test_the_beginning_of_a_stop_string_is_not_certain(tokenizer: Any) -> None:
    followed = continuation(tokenizer, "fox sang")
    text = followed.read(encode(tokenizer, "a fox"))
    assert followed.certain_text(text) == text.text.removesuffix("fox")


def test_rows_end_each_by_itself(tokenizer: Any) -> None:
    fox, moon = encode(tokenizer, "fox"), encode(tokenizer, "moon")
    rows = [continuation(tokenizer, "fox"), continuation(tokenizer, most=len(fox))]
    parts: list[str] = []
    length = max(len(fox), len(moon))
    written = torch.tensor([ids + [0] * (length - len(ids)) for ids in (fox, moon, fox, fox)])
    criterion = RowCriterion(rows, width=0)
    done = [criterion(written[:, :end], None).tolist() for end in range(1, length + 1)]
    assert done[len(fox) - 1] == [True, False, True, True]
    texts = criterion.read(1, written[2:].tolist())
    assert [text.finish_reason for text in texts] == ["length"] * 2
    streaming = RowCriterion(rows[1:], 0, RowTexts([stream_into(parts)]))
    streaming(written[2:3, : len(fox)], None)
    assert "".join(parts).strip() == "fox"


def test_beams_end_each_by_itself_wherever_they_are(tokenizer: Any) -> None:
    fox = encode(tokenizer, "the fox")
    criterion = BeamCriterion([continuation(tokenizer, "fox")], width=0)
    for end in range(1, len(fox) + 1):
        beams = [fox[:end], fox[:1] * end]
        if end % 2:
            beams.reverse()
        done = criterion(torch.tensor(beams), None).tolist()
    assert done == [beam == fox for beam in beams]


def test_a_deadline_ends_all_rows() -> None:
    ids = torch.zeros((3, 2))
    for deadline, done in ((NO_DEADLINE, False), (Deadline(0.0), True)):
        criterion = DeadlineCriterion(deadline)
        assert criterion(ids, None).tolist() == [done] * 3
        assert criterion.reached is done


def test_processes_of_torchrun_ask_for_the_time_at_every_eighth_step(monkeypatch: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    criterion = DeadlineCriterion(Deadline(0.0))
    done = [criterion(torch.zeros((1, 1)), None).tolist() for _ in range(8)]
    assert done == [[False]] * 7 + [[True]]


@pytest.mark.parametrize(("length", "count"), [(2, 0), (3, 1), (6, 1), (7, 2), (None, 2)])
def test_recorded_tokens_end_within_a_length(length: int | None, count: int) -> None:
    tokens = [GeneratedToken(id=number, text="", logprob=0.0) for number in (5, 6)]
    records = Growing([*map(TokenRecord, (0, 3), tokens)])
    text = GenerationState("foxbear", 2, None, DecoderState((), 0, 0), records)
    found = text.recorded_tokens(length=length)
    assert [token.text for token in found] == ["fox", "bear"][:count]


def test_sequences_share_their_items_and_do_not_change() -> None:
    first = Growing([1, 2])
    longer, other = first.plus(3), first.plus(4)
    assert (tuple(first), tuple(longer), tuple(other.plus(5))) == ((1, 2), (1, 2, 3), (1, 2, 4, 5))
    assert (longer[-1], longer[1:], longer[:9:2], first[1:]) == (3, [2, 3], [1, 3], [2])
    assert longer[::-1] == [3, 2, 1] and longer[:-1] == [1, 2]
    assert longer == (1, 2, 3) and hash(longer) == hash(Growing((1, 2, 3))) and longer != other
    with pytest.raises(IndexError):
        first[2]
    many: Growing[int] = Growing()
    for number in range(200_000):  # Copies would take minutes.
        many = many.plus(number)
    assert len(many) == 200_000
