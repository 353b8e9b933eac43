"""What tasks have in common whose results are generated texts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NotRequired, TypeVar

from transformers import GenerationConfig
from typing_extensions import TypedDict

from handlers.batching.padding import pad
from handlers.batching.padding import run as run_padded
from handlers.batching.rows import Outputs, RowOutcome, require_outputs
from handlers.batching.tokenization import Window
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.generation.backends.base import ContinuousModel
from handlers.generation.batch_scheduler import BatchScheduler
from handlers.generation.checkpoint_defaults import with_checked_defaults
from handlers.generation.generator import Generator, Prompt, PromptLayout, with_grammars
from handlers.generation.parameters import SamplingParameters
from handlers.generation.stopping import GenerationState
from handlers.model import Model
from handlers.process.deadline import NO_DEADLINE, Deadline
from handlers.tasks._text import TextTask
from handlers.telemetry.meter import Meter
from handlers.types.request import TextToken

QueryT = TypeVar("QueryT")

# Outputs for each token of a prompt take gigabytes where a vocabulary is large.
COMPARED_TOKENS = 1024


class Details(TypedDict):
    """Why a text ended (`length`, `eos_token` or `stop_sequence`), and what it took.

    `tokens` are those of the text, with log probabilities, and `top_tokens` the most likely ones in
    the place of each. `prefill` is empty: those of the prompt are not computed.
    """

    finish_reason: str
    generated_tokens: int
    input_length: int
    seed: int | None
    prefill: NotRequired[list[TextToken]]
    tokens: NotRequired[list[TextToken]]
    top_tokens: NotRequired[list[list[TextToken]]]


class GenerationTask(TextTask[QueryT, Prompt]):
    """A task whose results are generated texts.

    Attributes:
        layout: where the new tokens of its models stand.
        base: the checkpoint's generation config.
    """

    layout: ClassVar[PromptLayout]
    outputs = ("logits",)
    per_token = ("logits",)
    default_batch_tokens = 8192
    packs = False
    generates = True
    new_tokens = 3

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.base = with_checked_defaults(checkpoint.generation_config, checkpoint.config)

    def run(
        self, model: Model, rows: Sequence[Prompt], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        generator = Generator(
            model,
            self.tokenizer,
            self.base,
            self.padding,
            meter,
            self.checkpoint.limit,
            deadline,
            self.layout,
        )
        if isinstance(model, ContinuousModel):
            return model.generate_prompts(generator, rows, self.budget)
        generate = generator.generate
        if isinstance(model, BatchScheduler):
            generate = partial(model.generate_prompts, generator)
        return with_grammars(partial(generate, budget=self.budget), rows)

    def run_made_up(self, model: Model, batches: Sequence[list[Any]]) -> None:
        new = GenerationConfig(
            max_new_tokens=self.new_tokens,
            pad_token_id=self.padding.ids.get("input_ids", 0),
            # `generate` takes what is not set from the checkpoint.
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
            padding=replace(self.padding, side="right"),
            budget=min(self.budget, COMPARED_TOKENS),
            per_token=self.outputs,
            meter=Meter(),
        )
        return require_outputs(outcomes)

    @abstractmethod
    def decode(self, query: QueryT, rows: Sequence[Window], outputs: Sequence[Outputs]) -> Any:
        """Return the texts of a query, ready for JSON."""

    def read_parameters(self, given: Mapping[str, Any]) -> Any:
        parameters = dict(given)
        if parameters.get("max_length") is not None:
            # Otherwise the YAML's default would take precedence over max_length.
            parameters.setdefault("max_new_tokens")
        return self.parameters.of_request(self.defaults_for(parameters), parameters)

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

    def check_parameters(self, parameters: SamplingParameters) -> None:
        """Check that a model can do what the parameters of a request ask for.

        Raises:
            RequestError: it cannot.
        """
        parameters.check_sequences(self.settings.max_sequences)
        parameters.check_logprobs()
        parameters.check_token_ids(self.vocabulary)


def details(
    row: Window, text: GenerationState, parameters: SamplingParameters
) -> dict[str, Details]:
    """Return the details of a text under their key; nothing where a request does not ask."""
    if not (parameters.details or parameters.records_tokens):
        return {}
    found = Details(
        finish_reason=text.finish_reason or "length",
        generated_tokens=text.tokens,
        input_length=len(row),
        seed=parameters.seed,
    )
    if not parameters.records_tokens:
        return {"details": found}
    tokens = text.recorded_tokens()
    found |= {"prefill": [], "tokens": [token.as_json() for token in tokens]}
    if parameters.top_n_tokens:
        found["top_tokens"] = [token.top_as_json() for token in tokens]
    return {"details": found}
