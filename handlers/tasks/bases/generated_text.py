"""The base of modes whose results are generated texts, and why and how long each text is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NotRequired, TypeVar

import numpy as np
from transformers import GenerationConfig
from typing_extensions import TypedDict

from ...batching.padding import RunOptions, pad, run_padded
from ...batching.rows import Outputs, RowOutcome, require_outputs
from ...batching.tokenization import Window
from ...checkpoints.checkpoint import Checkpoint
from ...config.handler_section import HandlerSection
from ...generation.backends.base import ContinuousModel
from ...generation.batch_scheduler import BatchScheduler
from ...generation.checkpoint_defaults import with_checked_defaults
from ...generation.generator import Generator, Prompt, PromptLayout
from ...generation.parameters import SamplingParameters
from ...generation.stopping import GenerationState
from ...model import Model
from ...process.deadline import NO_DEADLINE, Deadline
from ...telemetry.metrics import Meter
from ...types.request import TextToken
from .text import TextTask

InputT = TypeVar("InputT")
# Outputs for each token of a prompt take gigabytes where a vocabulary is large.
COMPARED_TOKENS = 1024


class Details(TypedDict):
    """Why a text ended (`length`, `eos_token` or `stop_sequence`), and what it took.

    `stop_sequence` is the text of `stop` that ended it, and `stop_token_id` the token of
    `stop_token_ids`. `reasoning_tokens` counts the generated
    tokens that are thoughts.

    `tokens` are the tokens of the text, with log probabilities, and `top_tokens` the most likely
    ones in the place of each. `prefill` and `prefill_top_tokens` have the same of the prompt;
    `prefill` is empty without `decoder_input_details`.

    `prompt_token_ids` and `token_ids` are the ids of the tokens of the prompt and of the new ones.
    """

    finish_reason: str
    generated_tokens: int
    reasoning_tokens: NotRequired[int]
    input_length: int
    seed: int | None
    stop_sequence: NotRequired[str]
    stop_token_id: NotRequired[int]
    prefill: NotRequired[list[TextToken]]
    tokens: NotRequired[list[TextToken]]
    top_tokens: NotRequired[list[list[TextToken]]]
    prefill_top_tokens: NotRequired[list[list[TextToken]]]
    prompt_token_ids: NotRequired[list[int]]
    token_ids: NotRequired[list[int]]


class GenerationTask(TextTask[InputT, Prompt]):
    """A task whose results are generated texts.

    Attributes:
        layout: where the new tokens of its models stand.
    """

    layout: ClassVar[PromptLayout]
    default_batch_tokens = 8192
    new_tokens = 3

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.generation_config = with_checked_defaults(
            checkpoint.generation_config, checkpoint.config
        )

    def run(
        self, model: Model, rows: Sequence[Prompt], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        generator = Generator(
            model,
            self.tokenizer,
            self.generation_config,
            self.padding,
            meter,
            self.checkpoint.limit,
            deadline,
            self.layout,
        )
        if isinstance(model, ContinuousModel | BatchScheduler):
            return model.generate_prompts(generator, rows, self.budget)
        return generator.generate(rows, self.budget)

    def run_warmup(self, model: Model, batches: Sequence[list[Any]]) -> None:
        new = GenerationConfig(
            max_new_tokens=self.new_tokens,
            pad_token_id=self.padding.ids.get("input_ids", 0),
            # `generate` takes other settings from the checkpoint.
            do_sample=False,
            num_beams=1,
            num_return_sequences=1,
        )
        for batch in (batches[0], batches[-1]):
            model.generate(pad(batch, self.padding), new)

    def outputs_for_comparison(self, model: Model, rows: Sequence[Prompt]) -> Sequence[Outputs]:
        """Return the scores of the token after each token of a prompt.

        Prompts are padded on the right, where padding changes no position: a decoder whose
        positions come from the code of transformers counts padding on the left.
        """
        outcomes = run_padded(
            model.forward,
            rows,
            RunOptions(
                padding=replace(self.padding, side="right"),
                budget=min(self.budget, COMPARED_TOKENS),
                per_token=self.description.outputs.names,
                meter=Meter(),
            ),
        )
        return require_outputs(outcomes)

    @abstractmethod
    def decode(self, item: InputT, rows: Sequence[Window], outputs: Sequence[Outputs]) -> Any:
        """Return the texts of an input, ready for JSON."""

    def read_parameters(self, given: Mapping[str, Any]) -> Any:
        parameters = dict(given)
        if parameters.get("max_length") is not None:
            # Otherwise the YAML's default would take precedence over max_length.
            parameters.setdefault("max_new_tokens")
        defaults = self.defaults_for(parameters)
        return self.with_known_adapter(self.parameters.of_request(defaults, parameters))

    def defaults_for(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of parameters that a request omits, which may depend on the others."""
        return self.defaults

    @property
    def truncation(self) -> bool:
        return self.settings.truncation is True

    @property
    def vocabulary(self) -> int:
        """The number of tokens that the model chooses from."""
        return int(self.checkpoint.config.get_text_config().vocab_size)


def details(
    row: Window, text: GenerationState, parameters: SamplingParameters
) -> dict[str, Details]:
    """Return the details of a text under their key; nothing if no parameter asks for them."""
    if not (parameters.details or parameters.returns_logprobs or text.ids is not None):
        return {}
    found = Details(
        finish_reason=text.finish_reason or "length",
        generated_tokens=text.tokens,
        input_length=len(row),
        seed=parameters.seed,
    )
    if text.stop_string is not None:
        found["stop_sequence"] = text.stop_string
    if text.end_token in parameters.stop_token_ids:
        found["stop_token_id"] = text.end_token
    if text.ids is not None:
        found["prompt_token_ids"] = np.asarray(row.features["input_ids"]).tolist()
        found["token_ids"] = list(text.ids)
    if not parameters.returns_logprobs:
        return {"details": found}
    tokens = text.recorded_tokens()
    found |= {"prefill": _prefill(text), "tokens": [token.as_json() for token in tokens]}
    if parameters.top_n_tokens:
        found["top_tokens"] = [token.top_as_json() for token in tokens]
        if text.prompt:
            found["prefill_top_tokens"] = [token.top_as_json() for token in text.prompt]
    return {"details": found}


def _prefill(text: GenerationState) -> list[TextToken]:
    """Return the tokens of the prompt, of which the first has no probability."""
    tokens = [token.as_json() for token in text.prompt]
    return [{**tokens[0], "logprob": None}, *tokens[1:]] if tokens else []
