"""Documents that Donut reads: a model that writes what it sees in an image, without words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from handlers.batching.rows import Outputs, RowOutcome
from handlers.batching.shapes import run_by_shape
from handlers.batching.tokenization import check_length, tokenize
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongCheckpoint
from handlers.model import Model
from handlers.process.deadline import NO_DEADLINE, Deadline, before
from handlers.tasks._generated_answers import answer_settings, answer_text, generate_answers
from handlers.tasks._image import ImageRow
from handlers.tasks._image_question import ImageQuestionTask
from handlers.tasks._media import MediaQuery
from handlers.telemetry.meter import Meter

ENCODER = "donut-swin"
PROMPT = "<s_docvqa><s_question>{}</s_question><s_answer>"
TAG = re.compile(r"<.*?>")
ANSWER = re.compile(r"<s_answer>(.*)</s_answer>")


class DonutTask(ImageQuestionTask):
    """Questions about documents, for Donut."""

    auto_class = "AutoModelForImageTextToText"
    outputs: tuple[str, ...] = ()
    explains = False

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        encoder = checkpoint.config.encoder.model_type
        if encoder != ENCODER:
            raise WrongCheckpoint(
                "config.json",
                f"is that of a {encoder} model, which writes no answers to questions",
                "use a checkpoint of Donut or of LayoutLM",
            )
        self._generation = answer_settings(checkpoint, settings.max_sequences)

    def tokens(self, question: str) -> dict[str, np.ndarray[Any, Any]]:
        prompt = PROMPT.format(question)
        ids = tokenize(self.tokenizer, [(prompt, None)], add_special_tokens=False)["input_ids"][0]
        # One token of the answer has to fit, too.
        most = self.max_tokens and self.max_tokens - 1
        check_length(len(ids), most, "the question with the prompt of the model")
        return {"decoder_input_ids": np.asarray(ids, np.int64)}

    def run(
        self, model: Model, rows: Sequence[ImageRow], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        generate = generate_answers(model, self._generation, deadline, self.max_tokens)
        return run_by_shape(before(deadline, generate), rows, budget=self.budget, meter=meter)

    def decode(
        self, query: MediaQuery, rows: Sequence[ImageRow], outputs: Sequence[Outputs]
    ) -> Any:
        text = answer_text(self.tokenizer, outputs[0], skip_special_tokens=False)
        for token in (self.tokenizer.eos_token, self.tokenizer.pad_token):
            text = text.replace(token, "")
        found = ANSWER.search(TAG.sub("", text, count=1).strip())
        return [{"answer": found.group(1).strip() if found else None}]

    @property
    def truncates(self) -> bool:
        """A prompt that is cut would have no place for the answer."""
        return False

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens of a prompt and its answer."""
        limits = (super().max_tokens, self._generation.max_length)
        return min((limit for limit in limits if limit), default=None)
