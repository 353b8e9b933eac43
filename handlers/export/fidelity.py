"""Fidelity: how closely a model has the outputs of its checkpoint in float32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain, cycle, islice, repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from ..batching.padding import Tensors
from ..batching.rows import BaseRow, Outputs, require_outputs
from ..errors import ConfigError, WrongCheckpoint, summarize
from ..generation.generator import Prompt
from ..generation.parameters import GenerationParameters
from ..model import Model
from ..tasks.base import BaseTask
from ..tasks.bases.labels import sigmoid, softmax
from ..telemetry.metrics import Meter
from .fidelity_report import Change, FidelityReport, TextFidelity, VectorFidelity

# Rows whose pairs are compared; 500 have 124,750 pairs.
COMPARED_ROWS = 500
# Outputs of a chunk are compared and dropped: the outputs of all rows take gigabytes if each token
# has a score for every word of a vocabulary.
CHUNK = 64
REGRESSION_TOLERANCE = 0.05
NAMED_CHANGES = 5
MAX_TEXTS = 16
MAX_NEW_TOKENS = 32
# Tokens of the common beginning of texts that share a cache.
COMMON_TOKENS = 512

Item = TypeVar("Item")
Logits = npt.NDArray[Any]
Matrix = npt.NDArray[np.float64]


class PlacedRow(NamedTuple):
    """A row and the place of its sample."""

    place: str
    row: BaseRow


def compare_with_float32(
    task: BaseTask[Any, Any], reference: Model, model: Model, rows: Sequence[PlacedRow]
) -> FidelityReport:
    """Compare a model with the checkpoint in float32.

    Rows are packed where the models support it, as they are served.
    """
    for each in (reference, model):
        task.choose_batching(each)
    compared = task.reference_rows(reference, [each.row for each in rows])
    expected, found = (_outputs(task, each, compared) for each in (reference, model))
    if task.description.outputs.are_vectors:
        return compare_vectors(expected, found)
    return compare_outputs(
        expected,
        found,
        independent=task.checkpoint.independent_labels,
        numbers=task.description.outputs.numbers,
        places=[each.place for each in rows],
        labels=task.labels,
    )


def _outputs(task: BaseTask[Any, Any], model: Model, rows: Sequence[BaseRow]) -> Iterator[Outputs]:
    for chunk in chunks(rows, CHUNK):
        yield from map(task.decision_scores, task.outputs_for_comparison(model, chunk))


def chunks(rows: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield parts of a sequence, in its order."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@torch.no_grad()
def check_fidelity(
    module: PreTrainedModel,
    model: Model,
    batches: Sequence[Tensors],
    what: str,
    tolerance: float = 1e-3,
) -> None:
    """Check that an exported model has the outputs of its checkpoint.

    Args:
        what: the file of the exported model, for the error message.
        tolerance: the maximum difference relative to the largest output, or to 1 if that is less.

    Raises:
        WrongCheckpoint: the outputs differ by more than the tolerance, or the exported model does
            not run batches of another shape than that which it was traced with.
    """
    for batch in batches:
        expected, mask = module(**in_dtype(batch, module.dtype)), batch.get("attention_mask")
        for name, exported in _run_export(model, batch, what).items():
            tensor, actual = (_unpadded(each.float(), mask) for each in (expected[name], exported))
            difference = float((tensor - actual).abs().max())
            # `difference > ...` would be false for NaN.
            if not difference <= tolerance * max(1.0, float(tensor.abs().max())):
                raise WrongCheckpoint(
                    what,
                    f"its {name} differ from the checkpoint's by {difference:.2g}",
                    "use save_mode: pretrained",
                )


def _run_export(model: Model, batch: Tensors, what: str) -> Mapping[str, torch.Tensor]:
    try:
        return model.forward(batch)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - each runtime has its own error types
        raise WrongCheckpoint(
            what,
            f"does not run a batch of {_describe_shape(batch)} ({summarize(error)})",
            "use save_mode: pretrained",
        ) from None


def _describe_shape(batch: Tensors) -> str:
    first = next(iter(batch.values()))
    if "input_ids" not in batch:
        return f"{len(first)} rows"
    return f"{len(first)} rows and {batch['input_ids'].shape[1]} tokens"


def in_dtype(batch: Tensors, dtype: torch.dtype) -> Tensors:
    """Return a batch whose floating-point inputs have the dtype of a module."""
    return {
        name: each.to(dtype) if each.is_floating_point() else each for name, each in batch.items()
    }


def _unpadded(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return an output without padding if it has a value for each token."""
    return values if mask is None or values.shape[:2] != mask.shape else values[mask.bool()]


def compare_outputs(
    expected: Iterable[Outputs],
    found: Iterable[Outputs],
    *,
    independent: bool = False,
    numbers: Sequence[str] = (),
    places: Iterable[str] = (),
    labels: Sequence[str] = (),
) -> FidelityReport:
    """Compare the outputs of two models for the same rows, one row at a time.

    A decision is the largest value in the last dimension of an output: labels, tokens of the
    vocabulary, or start and end tokens of an answer. A single logit is a regression and agrees
    within 5%, and so does each value of the outputs that are numbers.

    Args:
        expected: the outputs of the checkpoint for each row.
        found: the outputs of the other model.
        independent: whether each label is a separate decision, as in multi-label classification.
        numbers: names of the outputs that are numbers.
        places: the place of each row, for the report of changed decisions.
        labels: names of the classes, by class number.
    """
    rows = decisions = close_calls = changed = 0
    difference, changes = 0.0, list[Change]()
    named = chain(places, repeat("a row"))
    for place, (row, other) in zip(named, zip(expected, found, strict=True), strict=False):
        rows += 1
        for output in _compared(row, other, independent, numbers, labels):
            here = list(output.changes(place))
            decisions += output.equal.size
            changed += len(here)
            close_calls += sum(change.is_close_call for change in here)
            changes = nlargest(NAMED_CHANGES, [*changes, *here], key=_margin)
            difference = max(difference, output.score_difference())
    agreement = 1 - changed / decisions
    return FidelityReport(
        rows, decisions, agreement, difference, close_calls, changes=tuple(changes)
    )


def _margin(change: Change) -> float:
    return math.inf if change.margin is None else change.margin


def _compared(
    row: Outputs,
    other: Outputs,
    independent: bool,
    numbers: Sequence[str],
    labels: Sequence[str],
) -> Iterator[_Output]:
    for name in row:
        pair = np.asarray(row[name]), np.asarray(other[name])
        label = f", {name}" if len(row) > 1 else ""
        if name in numbers:
            yield _Regression(pair[0][..., None], pair[1][..., None], label, labels)
        else:
            yield _output_class(pair[0], independent)(*pair, label, labels)


@dataclass(frozen=True)
class _Output:
    """One output of both models for a row: one label each."""

    expected: Logits
    found: Logits
    name: str
    labels: Sequence[str]

    @property
    def equal(self) -> npt.NDArray[np.bool_]:
        """Whether each decision is equal; NaN and infinite values agree with nothing."""
        same = self.expected.argmax(-1) == self.found.argmax(-1)
        return np.asarray(same & np.isfinite(self.found).all(-1))

    def changes(self, place: str) -> Iterator[Change]:
        """Yield the decisions that differ."""
        margins = self.margins()
        for index in map(tuple, np.argwhere(np.atleast_1d(~self.equal))):
            position = index if self.equal.ndim else ()
            where = f"{place}{self.name}{self._position(position)}"
            margin = None if margins is None else float(margins[position])
            yield Change(where, *self._decisions(position), margin)

    def margins(self) -> npt.NDArray[np.float64] | None:
        """Return the difference of the checkpoint's two best probabilities."""
        best = np.partition(softmax(self.expected), -2, axis=-1)
        return np.asarray(best[..., -1] - best[..., -2])

    def score_difference(self) -> float:
        """Return the largest difference of a probability; 1 for NaN."""
        with np.errstate(invalid="ignore"):
            difference = np.abs(self._scores(self.expected) - self._scores(self.found)).max()
        return float(difference) if np.isfinite(difference) else 1.0

    def _scores(self, logits: Logits) -> npt.NDArray[np.float64]:
        return softmax(logits)

    def _position(self, position: tuple[int, ...]) -> str:
        return "".join(f", token {number}" for number in position)

    def _decisions(self, position: tuple[int, ...]) -> tuple[str, str]:
        expected, found = self.expected[position], self.found[position]
        finite = np.isfinite(found).all()
        return self._label(expected.argmax()), (
            self._label(found.argmax()) if finite else "not finite"
        )

    def _label(self, number: int) -> str:
        named = len(self.labels) == self.expected.shape[-1]
        return self.labels[number] if named else str(number)


class _Independent(_Output):
    """Labels that each are a decision."""

    @property
    def equal(self) -> npt.NDArray[np.bool_]:
        return np.asarray(((self.expected > 0) == (self.found > 0)) & np.isfinite(self.found))

    def margins(self) -> npt.NDArray[np.float64]:
        return np.abs(2 * sigmoid(self.expected) - 1)

    def _scores(self, logits: Logits) -> npt.NDArray[np.float64]:
        return sigmoid(logits)

    def _position(self, position: tuple[int, ...]) -> str:
        return super()._position(position[:-1])

    def _decisions(self, position: tuple[int, ...]) -> tuple[str, str]:
        label = self._label(position[-1])
        decisions = label, f"not {label}"
        return decisions if self.expected[position] > 0 else decisions[::-1]


class _Regression(_Output):
    """A single logit, a number."""

    @property
    def equal(self) -> npt.NDArray[np.bool_]:
        tolerance = REGRESSION_TOLERANCE * np.maximum(1, np.abs(self.expected))
        return np.asarray(np.abs(self.expected - self.found) <= tolerance)[..., 0]

    def margins(self) -> None:
        return None

    def _position(self, position: tuple[int, ...]) -> str:
        return "".join(f", value {number}" for number in position)

    def _scores(self, logits: Logits) -> npt.NDArray[np.float64]:
        return sigmoid(logits)

    def _decisions(self, position: tuple[int, ...]) -> tuple[str, str]:
        pair = (self.expected[position][0], self.found[position][0])
        return f"{pair[0]:.3g}", f"{pair[1]:.3g}"


def _output_class(expected: Logits, independent: bool) -> type[_Output]:
    if independent:
        return _Independent
    return _Regression if expected.shape[-1] == 1 else _Output


def compare_vectors(expected: Iterable[Outputs], found: Iterable[Outputs]) -> FidelityReport:
    """Compare the vectors of two models for the same rows, one row at a time.

    A row has one vector, or one for each token, whose mean is then compared with other rows'. Where
    a model has several outputs, the vectors of each are compared.

    Args:
        expected: the outputs of the checkpoint for each row.
        found: the outputs of the other model.
    """
    rows = 0
    cosines: list[Matrix] = []
    means: list[tuple[Matrix, Matrix]] = []
    for row, other in zip(expected, found, strict=True):
        rows += 1
        pairs = [(_vectors(row[name]), _vectors(other[name])) for name in row]
        cosines += [_cosines(*map(_joined, pair)) for pair in pairs]
        if len(means) < COMPARED_ROWS:
            first, second = zip(*pairs, strict=True)
            means.append((_mean(first), _mean(second)))
    every = np.concatenate(cosines)
    similar = [_similarities(np.stack(each)) for each in zip(*means, strict=True)]
    agreement = VectorFidelity(
        float(every.mean()), float(every.min()), rank_correlation(*similar), len(similar[0])
    )
    return FidelityReport(rows, 0, 1.0, 0.0, vectors=agreement)


def rank_correlation(first: Matrix, second: Matrix) -> float:
    """Return Spearman's rank correlation; 1 for fewer than two values.

    Equal values, which float32 similarities hardly have, get different ranks.
    """
    if len(first) < 2:
        return 1.0
    ranks = np.stack([np.argsort(np.argsort(each, kind="stable")) for each in (first, second)])
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


def _vectors(values: Any) -> Matrix:
    """Return vectors without values that are not finite, which agree with nothing.

    The maps of a convolution are one vector.
    """
    array = np.asarray(values, dtype=np.float64)
    vectors = array if array.ndim == 2 else array.reshape(1, -1)
    return np.where(np.isfinite(vectors).all(-1, keepdims=True), vectors, 0.0)


def _joined(vectors: Matrix) -> Matrix:
    """Return vectors; numbers of tokens, such as their weights, become a single vector."""
    return vectors.T if vectors.shape[-1] == 1 else vectors


def _mean(outputs: Sequence[Matrix]) -> Matrix:
    """Return the means of the vectors of all outputs, one after another."""
    return np.concatenate([vectors.mean(0) for vectors in outputs])


def _cosines(first: Matrix, second: Matrix) -> Matrix:
    """Return the cosine of each vector and its counterpart. Shape: (vectors,)."""
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.asarray((first * second).sum(-1) / np.maximum(lengths, 1e-12))


def _similarities(vectors: Matrix) -> Matrix:
    """Return the cosine of each pair of rows. Shape: (pairs,)."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return np.asarray((unit @ unit.T)[np.triu_indices(len(unit), 1)])


def compare_texts(
    task: BaseTask[Any, Any], reference: Model, model: Model, rows: Sequence[PlacedRow]
) -> TextFidelity:
    """Compare the greedy texts of two models.

    The texts of a back end may differ from the texts of `generate`, although the model is the same:
    the back end computes texts together, in another order of additions.

    Args:
        model: the model whose texts are generated concurrently.
        rows: texts; the models continue the first ones.
    """
    prompts = [_greedy(each.row) for each in rows[:MAX_TEXTS]]
    return _compare_all(_texts(task, reference, prompts), _texts(task, model, prompts))


def compare_cached_texts(
    task: BaseTask[Any, Any], reference: Model, model: Model, rows: Sequence[PlacedRow]
) -> TextFidelity:
    """Compare the greedy texts of prompts that begin alike with and without a shared cache.

    Args:
        reference: the model without prefix caching.
        model: the model with it. It generates each text twice: while the cache is filled, and
            then with it.
        rows: texts. Their tokens, repeated, are the common beginning.
    """
    prompts = _with_common_beginning([_greedy(each.row) for each in rows[:MAX_TEXTS]], task)
    expected = list(_texts(task, reference, prompts))
    found = [each for _ in range(2) for each in _texts(task, model, prompts)]
    return _compare_all(expected * 2, found)


def _with_common_beginning(prompts: Sequence[Prompt], task: BaseTask[Any, Any]) -> list[Prompt]:
    longest = max(len(prompt) + prompt.new_tokens for prompt in prompts)
    limit = task.checkpoint.limit or COMMON_TOKENS + longest
    size = max(0, min(COMMON_TOKENS, limit - longest))
    common = {
        name: [*islice(cycle(chain.from_iterable(each.features[name] for each in prompts)), size)]
        for name in prompts[0].features
    }
    return [
        replace(
            prompt,
            features={name: [*common[name], *values] for name, values in prompt.features.items()},
        )
        for prompt in prompts
    ]


def _compare_all(expected: Iterable[Sequence[int]], found: Iterable[Sequence[int]]) -> TextFidelity:
    compared = [_compare_tokens(*pair) for pair in zip(expected, found, strict=True)]
    tokens = sum(count for count, _ in compared)
    equal = sum(1 for _, is_equal in compared if is_equal)
    return TextFidelity(len(compared), equal, tokens, 1 - (len(compared) - equal) / tokens)


def _greedy(row: Any) -> Prompt:
    """Return the first half of a row, which may be a whole text, as a prompt.

    A prompt with images stays whole: its tokens are the images' as well.
    """
    prompt: Prompt = row
    length, new_tokens = (len(prompt) + 1) // 2, min(prompt.new_tokens, MAX_NEW_TOKENS)
    if prompt.media:
        length = len(prompt)
    return replace(
        prompt,
        features={name: values[:length] for name, values in prompt.features.items()},
        # No text ends early: a few tokens say little.
        parameters=GenerationParameters(min_new_tokens=new_tokens),
        new_tokens=new_tokens,
    )


def _texts(
    task: BaseTask[Any, Any], model: Model, prompts: Sequence[Prompt]
) -> Iterator[list[int]]:
    """Yield the new tokens of each prompt."""
    together = task.settings.max_num_seqs
    for start in range(0, len(prompts), together):
        outcomes = task.run(model, prompts[start : start + together], Meter())
        for outputs in require_outputs(outcomes):
            yield outputs["sequences"][0].tolist()


def _compare_tokens(expected: Sequence[int], found: Sequence[int]) -> tuple[int, bool]:
    """Return the number of tokens up to the first that differs, and whether none does."""
    for count, (token, other) in enumerate(zip(expected, found, strict=True), 1):
        if token != other:
            return count, False
    return len(expected), True
