from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.tasks.question_answering import MIN_CONTEXT_TOKENS
from tests.samples import FINE, LONG, ODD
from tests.sentences import Sentence
from tests.serving import Served

MODE = "question_answering"
families = pytest.mark.parametrize("family", ["Bert", "Roberta"])


def ask(model: Served, question: str, context: str, **given: Any) -> Any:
    return model.ask({"question": question, "context": context}, **given)


@families
@pytest.mark.parametrize(
    "question", ["Who sings in Paris?", "[CLS] who [SEP] sings?", "<s> who </s> sings?", "?" * 30]
)
def test_an_answer_is_a_substring_of_the_context(
    served: Callable[..., Served], family: str, question: str
) -> None:
    for context in (FINE, ODD, LONG, "[CLS] Ada [SEP]", "🎉", "e\u0301"):
        answers = ask(served(MODE, family=family), question, context, top_k=50)
        assert answers[0]["answer"]
        for answer in answers:
            assert answer["answer"] == context[answer["start"] : answer["end"]] != ""
            assert 0 < answer["score"] <= 1


@families
def test_an_answer_has_no_more_tokens_than_requested(
    served: Callable[..., Served], family: str
) -> None:
    model = served(MODE, family=family)
    given = {"top_k": 200, "align_to_words": False}
    (one,) = {
        len(each["answer"]) for each in ask(model, "Who?", "北京是中国", max_answer_len=1, **given)
    }
    more = {
        len(each["answer"]) for each in ask(model, "Who?", "北京是中国", max_answer_len=15, **given)
    }
    assert one == 1
    assert more == {1, 2, 3, 4, 5}


@families
def test_a_question_is_truncated_to_max_question_len(
    served: Callable[..., Served], family: str
) -> None:
    model, few = served(MODE, family=family), {"top_k": 5}
    count = len(model.engine.task.checkpoint.tokenizer.tokenize("Who sings"))
    whole = ask(model, "Who sings in Paris?", FINE, **few)
    assert ask(model, "Who sings in Paris?", FINE, max_question_len=99, **few) == whole
    short = ask(model, "Who sings", FINE, **few)
    assert ask(model, "Who sings in Paris?", FINE, max_question_len=count, **few) == short != whole


def test_answers_are_ranked_and_of_different_words(served: Callable[..., Served]) -> None:
    answers = ask(served(MODE), "Who sings?", LONG, top_k=10)
    scores = [answer["score"] for answer in answers]
    assert len(answers) == 10 and scores == sorted(scores, reverse=True)
    assert len({answer["answer"].lower() for answer in answers}) == 10


def test_the_empty_answer_is_returned_if_requested(served: Callable[..., Served]) -> None:
    found = ask(served(MODE), "Who?", FINE, handle_impossible_answer=True, top_k=999)
    (empty,) = [answer for answer in found if answer["answer"] == ""]
    assert (empty["start"], empty["end"]) == (0, 0) and 0 < empty["score"] < 1


def test_a_context_without_a_readable_token_has_no_answer(served: Callable[..., Served]) -> None:
    assert ask(served(MODE), "Who?", "\u200b") == {"score": 1.0, "start": 0, "end": 0, "answer": ""}


def test_the_end_of_a_long_context_is_read(served: Callable[..., Served]) -> None:
    context = "a fox sang. " * 60
    alone = ask(served(MODE), "Who?", context + ODD, top_k=400, doc_stride=20)
    assert max(answer["end"] for answer in alone) > len(context)


@pytest.mark.parametrize(
    ("question", "context", "given", "facts"),
    [
        ("Who? " * 200, FINE, {}, ["0", "128"]),
        ("Who?", FINE, {"max_seq_len": 9}, ["4", "9"]),
        (
            "Who?",
            "a " * 50_000,
            {"doc_stride": 10**9},
            ["49,878", "123", "122"],
        ),
    ],
)
def test_inputs_that_are_too_long_are_refused(
    served: Callable[..., Served], question: str, context: str, given: Any, facts: list[str]
) -> None:
    status, message = served(MODE).refuse({"question": question, "context": context}, **given)
    assert (status, message) == (413, Sentence(*facts))


def test_more_than_1000_answers_are_refused(served: Callable[..., Served]) -> None:
    refusal = served(MODE).refuse({"question": "Who?", "context": "Ada"}, top_k=1001)
    assert refusal == (400, Sentence("top_k", "1001", "1000"))


@pytest.mark.parametrize("missing", ["question", "context"])
def test_a_question_needs_its_context_and_a_context_its_question(
    served: Callable[..., Served], missing: str
) -> None:
    inputs = {"question": "Who?", "context": "Ada"}
    del inputs[missing]
    assert served(MODE).refuse(inputs)[1].startswith(f"inputs has no {missing}; send both")


def test_a_question_may_leave_as_few_tokens_as_an_answer_needs(
    served: Callable[..., Served],
) -> None:
    model = served(MODE)
    sequences = model.engine.task.checkpoint.tokenizer("Who sings?", "In").sequence_ids()
    least = len(sequences) - sequences.count(1) + MIN_CONTEXT_TOKENS
    inputs = {"question": "Who sings?", "context": "Nina sings in the bar. " * 20}
    assert model.ask(inputs, max_seq_len=least, doc_stride=0)
    status, _ = model.refuse(inputs, max_seq_len=least - 1, doc_stride=0)
    assert status == 413
