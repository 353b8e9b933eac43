"""The parameters of text generation, by the names of transformers' `GenerationConfig`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from handlers.errors import RequestTooLarge
from handlers.schemas.parameters import Parameters
from handlers.schemas.pipeline_names import ANY, PipelineNames

Probability = Annotated[float, Field(gt=0, le=1)]
Few = Annotated[int, Field(ge=1, le=32)]
StopText = Annotated[str, Field(min_length=1)]
StopTexts = StopText | list[StopText] | None

# The first are what text-generation-inference's clients always send, the others are a pipeline's.
NAMES = PipelineNames(
    ignored={
        "adapter_id": [0],
        "best_of": [0, 1],
        "decoder_input_details": [False],
        "frequency_penalty": [0],
        "grammar": [0],
        "top_n_tokens": [0],
        "watermark": [False],
        "batch_size": ANY,
        "clean_up_tokenization_spaces": ANY,
        "pad_token_id": ANY,
        "padding": ANY,
        "truncation": ANY,  # what is too long is refused, unless the YAML says otherwise
        "use_cache": ANY,
    }
)
OURS = {"max_new_tokens", "max_length", "truncate", "stop", "seed", "return_full_text", "details"}


class GenerationParameters(Parameters):
    """Settings of one prompt; what is left out is as the checkpoint's generation_config says.

    `max_length` counts the prompt's tokens too, and holds where `max_new_tokens` is not set;
    `truncate` keeps so many tokens of the prompt, its end unless the YAML says otherwise; 0 is all;
    `stop` ends the text before the first of these strings; `seed` makes sampling repeatable;
    `return_full_text` puts the prompt before the new text; `details` adds why it ended and how many
    tokens it took, as the text-generation-inference server tells it.
    """

    pipeline_names: ClassVar[PipelineNames] = NAMES

    max_new_tokens: PositiveInt | None = None
    max_length: PositiveInt | None = None
    min_new_tokens: NonNegativeInt | None = None
    do_sample: bool = False
    temperature: Annotated[float, Field(ge=1e-6)] | None = None
    top_k: NonNegativeInt | None = None
    top_p: Probability | None = None
    min_p: Probability | None = None
    typical_p: Probability | None = None
    num_beams: Few = 1
    num_return_sequences: Few = 1
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    no_repeat_ngram_size: NonNegativeInt | None = None
    length_penalty: Annotated[float, Field(ge=-20, le=20)] | None = None
    early_stopping: bool | None = None
    truncate: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    stop: tuple[str, ...] = ()
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    return_full_text: bool = True
    details: bool = False

    @field_validator("stop", mode="before", json_schema_input_type=StopTexts)
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        texts = [value] if isinstance(value, str) else value
        if texts is None:
            return ()
        if not isinstance(texts, (list, tuple)) or not all(
            isinstance(text, str) and text for text in texts
        ):
            raise ValueError("must be a text or a list of texts; none of them empty")
        return tuple(texts)

    @model_validator(mode="after")
    def _room_for_the_fewest(self) -> Self:
        fewest, most = self.min_new_tokens, self.max_new_tokens
        if fewest and most and fewest > most:
            raise ValueError(
                f"min_new_tokens is {fewest} and max_new_tokens {most}"
                "; lower the first or raise the second"
            )
        return self

    def new_tokens_behind(self, length: int) -> int | None:
        """Return how many new tokens are asked for behind a prompt of so many; None if it is open.

        Raises:
            RequestTooLarge: the prompt alone has `max_length` tokens.
        """
        total = self.max_length
        if self.max_new_tokens or total is None:
            return self.max_new_tokens
        if total <= length:
            raise RequestTooLarge(
                f"the prompt has {length:,} tokens and max_length is {total:,}"
                "; raise it, or set max_new_tokens, which counts new ones only."
            )
        return total - length

    @property
    def for_generate(self) -> dict[str, Any]:
        """What goes to `generate` as it is."""
        return self.model_dump(exclude=OURS, exclude_none=True)
