"""The labelled questions of `handler.labelled`, with which calibration is measured.

A line is a body of `decisions` with an answer for each question, or a text with its label; the
labels of all such lines are then the options:

    {"input": "a text", "questions": [{"type": "predicate", …}], "answers": [true]}
    {"inputs": "a text", "label": "POSITIVE"}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_serve.handlers.config.messages import quote
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import RequestError, WrongConfig
from hf_serve.handlers.protocols.openai.decisions import (
    DecisionsBody,
    OpenAIQuestion,
    text_of_content,
    text_of_input,
)
from hf_serve.handlers.types.decisions import LabelledQuestion, Option, Question
from hf_serve.handlers.types.parameters import check_text, parse_body
from hf_serve.scripts.paths import labelled_file

FORM = 'write {"input": …, "questions": […], "answers": […]} or {"inputs": …, "label": …}'
KEY = "handler.labelled"


def labelled_questions(config_path: Path, config: ModelConfig) -> list[LabelledQuestion]:
    """Return the questions of the file that the YAML names; none where it names none.

    Raises:
        WrongConfig: the file cannot be read, or a line is no question with its answer.
    """
    path = labelled_file(config_path, config)
    if path is None:
        return []
    lines = list(_lines(path))
    labels = sorted({str(line["label"]) for _, line in lines if "label" in line})
    return [each for place, line in lines for each in _questions(line, place, labels)]


def _lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the content of each line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise WrongConfig(KEY, f"{path} cannot be read ({reason})", "correct the path") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            found = json.loads(line)
        except ValueError:
            raise WrongConfig(place, "is no JSON", FORM) from None
        if not isinstance(found, dict):
            raise WrongConfig(place, "is no object", FORM)
        yield place, found


def _questions(
    line: Mapping[str, Any], place: str, labels: Sequence[str]
) -> Iterator[LabelledQuestion]:
    try:
        if "label" in line:
            options = [Option(label) for label in labels]
            text = check_text(line.get("inputs"), "inputs", sys.maxsize)
            question = Question("choice", text, "", options)
            question.check("label")
            yield LabelledQuestion(question, labels.index(str(line["label"])), place)
            return
        body = parse_body(DecisionsBody, {**line})
        text = check_text(text_of_input(body.input), "input", sys.maxsize)
    except RequestError as error:
        raise WrongConfig(place, f"is wrong ({str(error).rstrip('.')})", FORM) from None
    answers = line.get("answers")
    if not isinstance(answers, list) or len(answers) != len(body.questions):
        raise WrongConfig(place, f"has no answer for each of {len(body.questions)} questions", FORM)
    for number, (asked, answer) in enumerate(zip(body.questions, answers, strict=True)):
        yield _question(asked, answer, text, f"{place}, questions[{number}]")


def _question(asked: OpenAIQuestion, answer: Any, text: str, place: str) -> LabelledQuestion:
    try:
        options = asked.options("the question")
        instructions = text_of_content(asked.instructions, "instructions")
        question = Question(asked.type, text, instructions, options)
        question.check("the question")
    except RequestError as error:
        raise WrongConfig(place, f"is wrong ({str(error).rstrip('.')})", FORM) from None
    named = str(answer).lower() if isinstance(answer, bool) else answer
    names = [each.name for each in options]
    if named not in names:
        raise WrongConfig(place, f"has the answer {quote(answer)}", "use one of its options")
    return LabelledQuestion(question, names.index(named), place)
