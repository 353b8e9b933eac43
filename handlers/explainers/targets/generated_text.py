"""Which words of a text, or which tokens of a prompt, led to each token of a generated text.

`target` is a text to be explained instead of the one that the model produces. Of a question it is
an option, and of a text for a guard model a category, or its number.

Captum's LLM attribution processes one prompt at a time: `LLMAttribution` wraps the perturbation
methods and `LLMGradientAttribution` the gradient methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from captum.attr import (
    FeatureAblation,
    KernelShap,
    LayerGradientXActivation,
    LayerIntegratedGradients,
    LLMAttribution,
    LLMGradientAttribution,
    ShapleyValueSampling,
)
from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase
from typing_extensions import TypedDict

from ... import explainers
from ...batching.tokenization import Window, tokenize
from ...compat.captum import (
    CharacterTokenizer,
    EncoderGradientXActivation,
    EncoderIntegratedGradients,
    TokenizedPrompt,
)
from ...errors import BadRequest, DeadlineExceeded, RequestError, TextTooLong, attempt
from ...process.deadline import Deadline
from ...process.ranks import seeded
from ...tasks import summarization, text2text_generation, text_generation, translation
from ...tasks.base import Label
from ...tasks.bases.generated_text import GenerationTask
from ...tasks.text2text_generation import TextToTextTask
from ...tasks.text_generation import GuardInput, QuestionInput, TextInPrompt
from ...types.parameters import ExplanationParameters, Granularity, check_text
from ...types.request import RequestState
from ..base import Attribution, AttributionTarget
from ..bases.text import (
    ExplainedTextModel,
    Explanation,
    Segment,
    TextExplanationTarget,
    TokenVectors,
    explanation_fields,
    normalized,
    segment_tokens,
)
from ..page import View, target_view, text_view
from ..runner import TimeShares, method_for, weights_of, with_method
from .base import candidate_number

Values = npt.NDArray[np.float64]


class LanguageModel(torch.nn.Module):
    """Adapts a model to the interface that Captum expects: token ids to logits.

    Args:
        vectors: what looks up the vectors of the prompt's tokens, whose output Captum explains;
            None where it explains token ids.
    """

    device = torch.device("cpu")

    def __init__(self, model: ExplainedTextModel, vectors: TokenVectors | None = None) -> None:
        super().__init__()
        self._model, self._vectors = model, vectors

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        """Return an object with `logits` of shape (rows, tokens, vocabulary)."""
        return SimpleNamespace(logits=self.run({"input_ids": input_ids}))

    def run(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the logits of rows without padding. Shape: (rows, tokens, vocabulary)."""
        self._model.deadline.check_together()
        ids = inputs["input_ids"]
        batch = {**inputs, "attention_mask": torch.ones_like(ids)}
        with self._vectors.replaced(ids, self._vectors(ids)) if self._vectors else nullcontext():
            return self._model.forward(batch)["logits"].float().cpu()


class EncoderDecoderModel(LanguageModel):
    """Shows an encoder-decoder as a decoder that continues what the encoder reads.

    Args:
        length: the number of tokens that the encoder reads; those after them are the text's.
        start: the tokens that the decoder reads before the text.
        vectors: see :class:`LanguageModel`.
    """

    def __init__(
        self,
        model: ExplainedTextModel,
        length: int,
        start: Sequence[int],
        vectors: TokenVectors | None = None,
    ) -> None:
        super().__init__(model, vectors)
        self._length, self._start = length, torch.tensor([start])

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        read, text = input_ids[:, : self._length], input_ids[:, self._length :]
        decoded = torch.cat([self._start.expand(len(text), -1), text], dim=1)
        logits = self.run({"input_ids": read, "decoder_input_ids": decoded})
        # The last start token has the logits of the text's first token, as a prompt's last one.
        logits = logits[:, self._start.shape[1] - 1 :]
        before = logits.new_zeros(len(logits), self._length - 1, logits.shape[2])
        return SimpleNamespace(logits=torch.cat([before, logits], dim=1))


@dataclass(frozen=True)
class GenerationAttribution:
    """The attribution of a target text to its prompt.

    Attributes:
        segments: the parts of the prompt, which are replaced as a whole.
        target: the token ids that follow the prompt.
        decoder_start: the tokens that the decoder of an encoder-decoder reads before the target;
            none for a decoder that continues the prompt.
    """

    model: ExplainedTextModel
    tokenizer: PreTrainedTokenizerBase
    row: Window
    segments: Sequence[Segment]
    target: list[int]
    settings: ExplanationParameters
    decoder_start: Sequence[int] = ()

    def language_model(self, vectors: TokenVectors | None = None) -> LanguageModel:
        """Return the model as Captum expects it, to explain token ids or their vectors."""
        if not self.decoder_start:
            return LanguageModel(self.model, vectors)
        return EncoderDecoderModel(self.model, len(self.row), self.decoder_start, vectors)

    @property
    def vectors(self) -> TokenVectors:
        """The vectors of the prompt's tokens."""
        if self.model.vectors is None:
            raise NotImplementedError
        return self.model.vectors

    def attribute(self, method: str) -> Values:
        """Attribute the log-probability of each target token to the prompt tokens.

        Returns:
            The contributions, 0 for special tokens. Shape: (target tokens, prompt tokens), or
            (1, prompt tokens) for methods that attribute the whole target only.
        """
        with seeded(0):
            attributions = METHODS[method](self)
        values = np.zeros((len(attributions), len(self.row)))
        explained = np.equal(self.row.encoding.special_tokens_mask, 0)
        values[:, explained] = attributions.detach().double().cpu().numpy()
        return values

    def prompt(self, segments: Iterable[Sequence[int]]) -> TokenizedPrompt:
        """Return the prompt as Captum expects it, with the positions of tokens that go together."""
        special = self.row.encoding.special_tokens_mask
        explained = ([each for each in tokens if not special[each]] for tokens in segments)
        return TokenizedPrompt(
            self.row.features["input_ids"],
            special,
            self.tokenizer,
            self.model.baseline_token_id,
            [tokens for tokens in explained if tokens],
        )

    @torch.no_grad()
    def log_probabilities(self) -> tuple[Values, Values]:
        """Return the log-probabilities of the target after the prompt and after the baseline."""
        ids = torch.tensor(self.row.features["input_ids"])
        special = torch.tensor(self.row.encoding.special_tokens_mask) == 1
        baseline = torch.where(special, ids, self.model.baseline_token_id)
        target = torch.tensor(self.target)
        return self._log_probabilities(ids, target), self._log_probabilities(baseline, target)

    def _log_probabilities(self, prompt: torch.Tensor, target: torch.Tensor) -> Values:
        row = torch.cat([prompt, target])[None]
        logits = self.language_model()(row).logits[0, len(prompt) - 1 : -1]
        selected = logits.log_softmax(-1)[torch.arange(len(target)), target]
        return np.asarray(selected.double().numpy())


def _perturbation(
    captum_class: Callable[[Any], Any], default_samples: int | None = None
) -> Callable[[GenerationAttribution], torch.Tensor]:
    def attribute(attribution: GenerationAttribution) -> torch.Tensor:
        model = attribution.language_model()
        prompt = attribution.prompt(segment.tokens for segment in attribution.segments)
        samples = attribution.settings.n_samples or default_samples
        method, options = captum_class, {"n_samples": samples} if default_samples else {}
        if captum_class is KernelShap and prompt.n_itp_features == 1:
            # Captum draws subsets of at least two segments; one has the whole difference.
            method, options = FeatureAblation, {}
        with torch.no_grad():
            result = LLMAttribution(method(model), CharacterTokenizer()).attribute(
                prompt, torch.tensor(attribution.target), forward_in_tokens=False, **options
            )
        return result.seq_attr[None] if result.token_attr is None else result.token_attr

    return attribute


def _integrated_gradients(attribution: GenerationAttribution) -> torch.Tensor:
    kind = EncoderIntegratedGradients if attribution.decoder_start else LayerIntegratedGradients
    captum = kind(attribution.language_model(attribution.vectors), attribution.vectors)
    steps = attribution.settings.n_steps or 24
    rows = max(1, attribution.model.budget // (len(attribution.row) + len(attribution.target)))
    return _attribute_gradients(captum, attribution, n_steps=steps, internal_batch_size=rows)


def _input_x_gradient(attribution: GenerationAttribution) -> torch.Tensor:
    kind = EncoderGradientXActivation if attribution.decoder_start else LayerGradientXActivation
    captum = kind(attribution.language_model(attribution.vectors), attribution.vectors)
    return _attribute_gradients(captum, attribution)


def _attribute_gradients(
    captum: Any, attribution: GenerationAttribution, **options: Any
) -> torch.Tensor:
    prompt = attribution.prompt([each] for each in range(len(attribution.row)))
    wrapped = LLMGradientAttribution(captum, CharacterTokenizer())
    return wrapped.attribute(prompt, torch.tensor(attribution.target), **options).token_attr


METHODS: dict[str, Callable[[GenerationAttribution], torch.Tensor]] = {
    "layer_integrated_gradients": _integrated_gradients,
    "input_x_gradient": _input_x_gradient,
    "feature_ablation": _perturbation(FeatureAblation),
    "shapley_value_sampling": _perturbation(ShapleyValueSampling, 10),
    "kernel_shap": _perturbation(KernelShap, 100),
}


GenerationTaskT = TypeVar("GenerationTaskT", bound=GenerationTask[Any])


class TokenWeight(TypedDict):
    """The importance of each word of the prompt for one token of the text."""

    token: str
    score: float
    importances: list[float]
    delta: float


@dataclass(frozen=True)
class ExplainedPrompt:
    """A prompt, in which tokens that are not explained count as special ones.

    Attributes:
        text: the text that the characters of its tokens are counted in.
    """

    row: Window
    text: str

    def segmented(self, granularity: Granularity) -> AttributionTarget:
        """Return the prompt with its tokens or words as segments."""
        segments = segment_tokens(self.row, [self.text], granularity)
        return AttributionTarget(self.row, segments, "logits", ())


@dataclass(eq=False)
class Plan:
    """A request with its method, its prompt and the tokens to explain.

    Attributes:
        outcome: its explanation, or its error, once it has run.
    """

    state: RequestState
    method: str
    target: list[int]
    prompt: ExplainedPrompt
    outcome: dict[str, Any] | RequestError = field(init=False)

    @property
    def segmented(self) -> AttributionTarget:
        """The prompt with its tokens or words as segments."""
        return self.prompt.segmented(self.state.settings.granularity)

    @property
    def cost(self) -> int:
        """Approximate number of tokens to compute; gradients are computed for each token."""
        explainer = explainers.get(self.method)
        passes = explainer().forwards(self.segmented, self.state.settings)
        repeats = len(self.target) if explainer.needs_gradients else 1
        return (len(self.prompt.row) + len(self.target)) * passes * repeats


class GeneratedTextTarget(TextExplanationTarget[GenerationTaskT]):
    """Explains the log-probability of every produced token, and of the whole text.

    `target` is a text to be explained instead of the one that the model produces.
    """

    default_method = "feature_ablation"
    has_own_decoder = True
    default_parameters = {"max_new_tokens": 10}

    def attribute(
        self, states: Sequence[RequestState], model: ExplainedTextModel
    ) -> list[dict[str, Any] | RequestError]:
        planned = [attempt(self._plan, state, model) for state in states]
        plans = sorted(
            (plan for plan in planned if isinstance(plan, Plan)), key=lambda plan: plan.cost
        )
        weights = weights_of([plan.state.http_request_id for plan in plans])
        shares = TimeShares(model.deadline, weights, model.cheaper)
        for plan, weight in zip(plans, weights, strict=True):
            plan.outcome = attempt(self._explain, plan, model, shares.take([weight]), shares)
        return [plan if isinstance(plan, RequestError) else plan.outcome for plan in planned]

    def prompt(self, state: RequestState) -> ExplainedPrompt:
        """Return the prompt of a request."""
        return ExplainedPrompt(state.rows[0], state.input.prompt)

    def select(self, state: RequestState) -> list[AttributionTarget]:
        return [self.prompt(state).segmented(state.settings.granularity)]

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[AttributionTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        whole, *tokens = attributions
        return {
            **explanation_fields(selected[0], whole),
            "tokens": [
                {
                    "score": float(np.exp(token.output)),
                    "importances": normalized(token),
                    "delta": token.delta,
                }
                for token in tokens
            ],
        }

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[View]:
        yield from target_view(explanation)
        for token in explanation["tokens"]:
            title = f"Importance for the token “{token['token']}”"
            yield text_view(title, explanation, token["importances"])

    def decoder_start(self, state: RequestState) -> Sequence[int]:
        """Return the tokens that a decoder reads before a text; none where it continues one."""
        return ()

    def chosen_tokens(self, state: RequestState, tokens: list[int]) -> list[int]:
        """Return the tokens of a text that the model has chosen itself."""
        return tokens

    def check_target(self, state: RequestState, ids: Sequence[int]) -> None:
        """Check that the model has positions for a text.

        Raises:
            RequestTooLarge: it has too few.
        """
        limit = self.task.checkpoint.limit
        if limit and len(state.rows[0]) + len(ids) > limit:
            raise TextTooLong(
                f"prompt and target have {len(state.rows[0]) + len(ids):,} tokens, and this model "
                f"takes {limit:,}; shorten one of them."
            )

    def _plan(self, state: RequestState, model: ExplainedTextModel) -> Plan:
        method, target = method_for(state.settings, self, model), self.target_tokens(state)
        return Plan(state, method, target, self.prompt(state))

    def _explain(
        self, plan: Plan, model: ExplainedTextModel, share: Deadline, shares: TimeShares
    ) -> dict[str, Any]:
        state, method, target, segmented = plan.state, plan.method, plan.target, plan.segmented
        attribution = GenerationAttribution(
            replace(model, deadline=share),
            self.task.tokenizer,
            plan.prompt.row,
            segmented.segments,
            target,
            state.settings,
            self.decoder_start(state),
        )
        try:
            values = attribution.attribute(method)
            log_probabilities, blank = attribution.log_probabilities()
        except DeadlineExceeded:
            raise shares.timed_out(method, share) from None
        response = self.to_response(
            state,
            [segmented],
            _attributions(values, log_probabilities, blank, segmented.segments),
        )
        for token, number in zip(response["tokens"], target, strict=False):
            token["token"] = self.task.tokenizer.decode([number])
        probability = float(np.exp(log_probabilities.sum()))
        response |= self.named_target(state, target, probability)
        return with_method(response, method)

    def named_target(
        self, state: RequestState, target: list[int], probability: float
    ) -> dict[str, Any]:
        """Return the `prediction` and the `target`.

        Args:
            target: the tokens that are explained.
            probability: the probability of these tokens after the prompt.
        """
        decoded = self.task.decode(state.input, state.rows, state.outputs)
        text = self.task.tokenizer.decode(target, skip_special_tokens=True)
        return {
            "prediction": decoded[0] if isinstance(decoded, list) else decoded,
            "target": {"label": text, "score": probability},
        }

    def target_tokens(self, state: RequestState) -> list[int]:
        """Return the tokens to explain, by default the tokens that the model writes.

        Raises:
            RequestError: there are none, or the target cannot be understood.
        """
        wanted = state.settings.target
        if wanted is None:
            ids = self.chosen_tokens(state, state.outputs[0]["sequences"][0].tolist())
        else:
            text = check_text(wanted, "target", self.task.max_characters)
            tokenized = tokenize(self.task.tokenizer, [(text, None)], add_special_tokens=False)
            ids = tokenized["input_ids"][0]
        if not ids:
            raise BadRequest("The model produces nothing for this prompt; give a target text.")
        self.check_target(state, ids)
        return ids


def _attributions(
    values: Values, log_probabilities: Values, blank: Values, segments: Sequence[Segment]
) -> list[Attribution]:
    """Return the attribution of the whole text and, if the method gives it, of each token."""
    joined = np.stack([values[:, list(segment.tokens)].sum(axis=1) for segment in segments], axis=1)
    whole = Attribution(joined.sum(axis=0), float(log_probabilities.sum()), float(blank.sum()))
    if len(joined) != len(log_probabilities):
        return [whole]
    rows = zip(joined, log_probabilities.tolist(), blank.tolist(), strict=True)
    return [whole, *(Attribution(*row) for row in rows)]


TaskT = TypeVar("TaskT", bound=TextToTextTask)


class TextToTextTarget(GeneratedTextTarget[TaskT]):
    """Explains a text by what the encoder reads.

    A token that the decoder must begin with, such as the token of a language, is not explained.
    """

    def decoder_start(self, state: RequestState) -> Sequence[int]:
        return self.task.decoder_start(state.input)

    def chosen_tokens(self, state: RequestState, tokens: list[int]) -> list[int]:
        forced = self.task.decoder_start(state.input)[1:]
        return tokens[1:] if tokens[:1] == forced else tokens

    def check_target(self, state: RequestState, ids: Sequence[int]) -> None:
        limit = self.task.decoder_limit
        tokens = len(self.decoder_start(state)) + len(ids)
        if tokens > limit:
            raise TextTooLong(
                f"the target has {tokens:,} tokens, and this model's texts have at most {limit:,}"
                "; shorten it."
            )


class TokensExplanation(Explanation):
    """Which words led to a text, as a whole and token by token."""

    tokens: list[TokenWeight]
    target: Label


class SummaryExplanation(TokensExplanation):
    """Which words led to a summary, as a whole and token by token."""

    prediction: summarization.Summary


class SummaryTarget(TextToTextTarget[summarization.Task]):
    """Explains a summary."""

    results = SummaryExplanation
    example_target = "Nina sings."


class TranslationExplanation(TokensExplanation):
    """Which words led to a translation, as a whole and token by token."""

    prediction: translation.Translation


class TranslationTarget(TextToTextTarget[translation.Task]):
    """Explains a translation."""

    results = TranslationExplanation
    example_target = "Nina singt."


class GeneratedTextExplanation(TokensExplanation):
    """Which words led to a generated text, as a whole and token by token."""

    prediction: text2text_generation.GeneratedText


class AnswerTarget(TextToTextTarget[text2text_generation.Task]):
    """Explains what a model with an encoder writes for a text."""

    results = GeneratedTextExplanation
    example_target = "Nina"


class TextExplanation(TokensExplanation):
    """Which words of the prompt led to a text, as a whole and token by token."""

    prediction: text_generation.Generated


class ContinuationTarget(GeneratedTextTarget[text_generation.Task]):
    """Explains a text by its prompt, and an answer about a text by the text.

    An answer is an option of a question, or a category of a guard model.
    """

    results = TextExplanation
    example_target = " there was a fox"

    def prompt(self, state: RequestState) -> ExplainedPrompt:
        if not _has_answers(state):
            return super().prompt(state)
        found = self._text(state)
        row = state.rows[found.number]
        part = EncodedPart(row.encoding, found.start, found.start + len(found.text))
        return ExplainedPrompt(replace(row, encoding=part), found.text)

    def target_tokens(self, state: RequestState) -> list[int]:
        if not _has_answers(state):
            return super().target_tokens(state)
        item, number = state.input, self._answer(state)
        if isinstance(item, QuestionInput):
            return [item.labels[number]]
        # The likeliest of the answers that mean the category.
        category = list(item.family.categories.values())[number]
        scores = state.outputs[item.family.questions.index(category.arguments)]["labels"]
        answers = [item.family.answers.index(each) for each in category.answers]
        return [item.labels[max(answers, key=scores.__getitem__)]]

    def named_target(
        self, state: RequestState, target: list[int], probability: float
    ) -> dict[str, Any]:
        if not _has_answers(state):
            return super().named_target(state, target, probability)
        answers, number = self._answers(state), self._answer(state)
        return {
            "prediction": max(answers, key=lambda each: each["score"]),
            "target": {**answers[number], "index": number},
        }

    def _text(self, state: RequestState) -> TextInPrompt:
        """Return the text that is explained, in the prompt of its answer."""
        item = state.input
        if isinstance(item, QuestionInput):
            return self.task.text_in_question(item)
        category = list(item.family.categories.values())[self._answer(state)]
        return self.task.text_for_guard(item, item.family.questions.index(category.arguments))

    def _answers(self, state: RequestState) -> list[Label]:
        """Return the options of a question, or the categories of a guard model."""
        item, found = state.input, self.task.decode(state.input, state.rows, state.outputs)
        if isinstance(item, GuardInput):
            return list(found)
        return [
            {"label": option.name, "score": score}
            for option, score in zip(item.question.options, found, strict=True)
        ]

    def _answer(self, state: RequestState) -> int:
        """Return the number of the answer that is explained, by default the likeliest one."""
        answers, target = self._answers(state), state.settings.target
        if target is None:
            return int(np.argmax([each["score"] for each in answers]))
        return candidate_number(target, [each["label"] for each in answers])


def _has_answers(state: RequestState) -> bool:
    return isinstance(state.input, QuestionInput | GuardInput)


@dataclass(frozen=True)
class EncodedPart:
    """The encoding of a prompt, of which one part is explained.

    Offsets are the part's own, and the tokens outside of it count as special ones.

    Attributes:
        start: the first character of the part.
        end: the character after its last one.
    """

    encoding: Encoding
    start: int
    end: int

    @property
    def tokens(self) -> list[str]:
        """The tokens of the prompt."""
        return list(self.encoding.tokens)

    @property
    def word_ids(self) -> list[int | None]:
        """The number of the word of each token."""
        return list(self.encoding.word_ids)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The characters of each token in the part; none of other tokens."""
        places = []
        for (start, end), outside in zip(
            self.encoding.offsets, self.special_tokens_mask, strict=True
        ):
            length = self.end - self.start
            first, last = max(0, start - self.start), min(length, end - self.start)
            places.append((0, 0) if outside else (first, last))
        return places

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for each special token and each token outside of the part, 0 for the others."""
        masks = []
        for (start, end), special in zip(
            self.encoding.offsets, self.encoding.special_tokens_mask, strict=True
        ):
            outside = end <= self.start or start >= self.end
            masks.append(int(bool(special) or outside))
        return masks

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 for each token of the part, None for the others."""
        return [None if outside else 0 for outside in self.special_tokens_mask]
