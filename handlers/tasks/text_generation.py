"""A prompt to its continuation, greedy unless asked otherwise.

    {"inputs": "Once upon", "parameters": {"max_new_tokens": 20, "stop": ["."]}}
    -> [{"generated_text": "Once upon a time there was a fox"}]

What a request gets is what `model.generate` gives for its prompt alone: rows share a forward only
where that cannot change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handlers.attempts import attempt
from handlers.batching import Padding
from handlers.checkpoint import Checkpoint
from handlers.errors import RequestError, RequestTooLarge, Unprocessable
from handlers.formats.base import Model
from handlers.generation import Generator, Prompt
from handlers.generation_parameters import GenerationParameters
from handlers.meter import Meter
from handlers.requests import Request
from handlers.rows import Outputs
from handlers.sections import Handler
from handlers.stopping import before_stop
from handlers.tasks.base import BaseTask
from handlers.texts import check_text
from handlers.windows import Window

NEW_TOKENS = 50


@dataclass(frozen=True)
class Continuation:
    """One prompt to continue."""

    prompt: str
    parameters: GenerationParameters


class Task(BaseTask[Continuation, Prompt]):
    """Text generation with a decoder; answers as the text-generation pipeline does."""

    auto_class = "AutoModelForCausalLM"
    outputs = ("logits",)
    per_token = ("logits",)
    parameters = GenerationParameters
    usual_budget = 8192
    packs = False
    generates = True

    def __init__(self, checkpoint: Checkpoint, settings: Handler) -> None:
        super().__init__(checkpoint, settings)
        self.base = checkpoint.generation_config
        if settings.tokenizer.truncation_side is None:
            self.tokenizer.truncation_side = "left"

    def parse(self, request: Request) -> Continuation:
        prompt = check_text(request.inputs, "inputs", self.longest_text)
        parameters: GenerationParameters = self.read_parameters(request.parameters)
        beams, sequences = parameters.num_beams, parameters.num_return_sequences
        if sequences > beams and (beams > 1 or not parameters.do_sample):
            raise Unprocessable(
                f"num_return_sequences is {sequences} and num_beams {beams}"
                "; ask for as many beams, or for do_sample: true without beams."
            )
        return Continuation(prompt, parameters)

    def encode(self, queries: Sequence[Continuation]) -> list[list[Prompt] | RequestError]:
        encoded = self.encode_texts([(query.prompt, None) for query in queries])
        return [
            row if isinstance(row, RequestError) else attempt(self._prompt, query, row[0])
            for query, row in zip(queries, encoded, strict=True)
        ]

    def run(self, model: Model, rows: Sequence[Prompt], meter: Meter) -> Sequence[Outputs]:
        padding, limit = self.padding, self.checkpoint.limit
        generator = Generator(model, self.tokenizer, self.base, padding, meter, limit)
        return generator.all(rows, self.budget)

    def decode(
        self, query: Continuation, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> Any:
        sequences = outputs[0]["sequences"]
        return [{"generated_text": self._text(query, rows[0], ids)} for ids in sequences]

    @property
    def padding(self) -> Padding:
        return Padding(self._pad_ids(), "left")

    @property
    def truncates(self) -> bool:
        return self.settings.truncation is True

    def _prompt(self, query: Continuation, row: Window) -> list[Prompt]:
        asked, limit = query.parameters.max_new_tokens, self.checkpoint.limit
        room = limit - len(row) if limit else asked or self._usual
        if room < (asked or 1):
            raise RequestTooLarge(
                f"the prompt has {len(row):,} tokens and max_new_tokens is {asked or 1:,}"
                f", together more than this model's {limit:,}; shorten one of them."
            )
        return [
            Prompt(row.features, row.encoding, query.parameters, asked or min(self._usual, room))
        ]

    @property
    def _usual(self) -> int:
        """New tokens where a request names no number."""
        named = self.base.max_new_tokens
        return int(self.settings.max_length or named or NEW_TOKENS)

    def _text(self, query: Continuation, row: Window, ids: Any) -> str:
        """Return the text of new tokens; decoded behind the prompt, which can decide on a space."""
        decode = self.tokenizer.decode
        prompt = row.features["input_ids"]
        before = len(decode(prompt, skip_special_tokens=True))
        new = decode([*prompt, *ids.tolist()], skip_special_tokens=True)[before:]
        new = before_stop(new, query.parameters.stop)
        return query.prompt + new if query.parameters.return_full_text else new
