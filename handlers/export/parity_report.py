"""The agreement of a model with its checkpoint in float32."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from heapq import nlargest
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.batching.rows import Outputs
from handlers.tasks.bases.labels import sigmoid, softmax

logger = logging.getLogger(__name__)

FILE = "quality.json"
REGRESSION_TOLERANCE = 0.05
# A decision whose two best scores differ by less can change with any rounding.
CLOSE_CALL = 0.05
NAMED_CHANGES = 5
# Quantile of the normal distribution for an interval of 95%.
Z = 1.96

Logits = npt.NDArray[Any]


@dataclass(frozen=True)
class Change:
    """A decision that differs from the checkpoint's.

    Attributes:
        place: the file and line of the sample, with the token or output; never its text.
        expected: the decision of the checkpoint.
        found: the decision of the model.
        margin: the difference of the checkpoint's two best probabilities; None for a regression.
    """

    place: str
    expected: str
    found: str
    margin: float | None

    def __str__(self) -> str:
        margin = "" if self.margin is None else f" (margin {self.margin:.3f})"
        return f"{self.place}: {self.expected} -> {self.found}{margin}"

    @property
    def is_close_call(self) -> bool:
        """Whether the checkpoint itself hardly prefers its decision."""
        return self.margin is not None and self.margin < CLOSE_CALL


@dataclass(frozen=True)
class TextAgreement:
    """The comparison of greedy texts that run side by side with those of `generate`.

    Attributes:
        texts: the number of texts.
        equal_texts: how many of them are equal.
        tokens: the number of tokens: those of each text up to the first one that differs. What
            follows it continues another text.
        token_agreement: the share of equal tokens.
    """

    texts: int
    equal_texts: int
    tokens: int
    token_agreement: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of `token_agreement`."""
        return wilson_interval(self.token_agreement, self.tokens)

    def __str__(self) -> str:
        return (
            f"greedy texts that run side by side have {self.token_agreement:.2%} of {self.tokens}"
            f" tokens of `generate` ({self.equal_texts} of {self.texts} texts are equal)"
        )


@dataclass(frozen=True)
class VectorAgreement:
    """The comparison of the vectors of two models for the same texts.

    Attributes:
        cosine: the mean cosine of both vectors of a text, or of a token.
        lowest_cosine: the lowest one.
        rank_correlation: Spearman's, of the similarities of all pairs of texts.
        pairs: the number of pairs.
    """

    cosine: float
    lowest_cosine: float
    rank_correlation: float
    pairs: int

    @property
    def agreement(self) -> float:
        """The smaller of mean cosine and rank correlation."""
        return min(self.cosine, self.rank_correlation)

    def __str__(self) -> str:
        return (
            f"has vectors with a mean cosine of {self.cosine:.4f} (lowest"
            f" {self.lowest_cosine:.4f}) to the checkpoint's, and a rank correlation of"
            f" {self.rank_correlation:.4f} of the similarities of {self.pairs:,} pairs"
        )


@dataclass(frozen=True)
class ParityReport:
    """The comparison of two models on the same rows.

    Attributes:
        rows: the number of rows.
        decisions: the number of decisions: one for each text, token, or start and end of an answer.
        label_agreement: the share of equal decisions.
        largest_score_difference: the largest difference of a probability.
        close_calls: how many of the changed decisions have a margin below `CLOSE_CALL`.
        dtype: the dtype that the compared model computes in; None in reports of earlier versions.
        rejected: the report of the dtype that `dtype: auto` selects, if the agreement was too low
            and float32 is served instead.
        generated: the comparison of texts, with `continuousBatching`.
        vectors: the comparison of vectors, of a mode without labels, which has no decisions.
        changes: the changed decisions with the largest margins. They are not written to the file.
    """

    rows: int
    decisions: int
    label_agreement: float
    largest_score_difference: float
    close_calls: int = 0
    dtype: str | None = None
    rejected: ParityReport | None = None
    generated: TextAgreement | None = None
    vectors: VectorAgreement | None = None
    changes: tuple[Change, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        rejected = f"; in {self.rejected.dtype} it {self.rejected}" if self.rejected else ""
        return f"{self.vectors or self._decided()}{rejected}"

    def _decided(self) -> str:
        low, high = self.interval
        calls = f"; {self.close_calls} of the {self.changed} that differ are close calls"
        close = calls if self.changed else ""
        generated = f"; {self.generated}" if self.generated else ""
        return (
            f"agrees with the checkpoint on {self.label_agreement:.2%} of {self.decisions} labels"
            f" (95% interval {low:.1%} to {high:.1%}, {self.rows} rows), largest score difference"
            f" {self.largest_score_difference:.3f}{close}{generated}"
        )

    def reaches(self, min_agreement: float) -> bool:
        """Return whether the model agrees with the checkpoint well enough.

        There are some hundred tokens of texts, few beside the labels, so the upper end of their
        interval has to reach the minimum.
        """
        texts_agree = self.generated is None or self.generated.interval[1] >= min_agreement
        return self.agreement >= min_agreement and texts_agree

    @property
    def agreement(self) -> float:
        """The share of equal decisions, or the agreement of vectors."""
        return self.vectors.agreement if self.vectors else self.label_agreement

    @property
    def changed(self) -> int:
        """The number of decisions that differ."""
        return round(self.decisions * (1 - self.label_agreement))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of `label_agreement`."""
        return wilson_interval(self.label_agreement, self.decisions)

    def describe_changes(self) -> str:
        """Return the changed decisions with the largest margins, and how many more there are."""
        more = self.changed - len(self.changes)
        return "; ".join([*map(str, self.changes), *([f"and {more} more"] if more > 0 else [])])

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON, without the changed decisions."""
        facts = asdict(replace(self, rejected=None, changes=()))
        del facts["changes"]
        rejected = self.rejected.as_json() if self.rejected else None
        return {**facts, "interval": list(self.interval), "rejected": rejected}

    def write(self, folder: Path) -> None:
        """Write the report to the directory of the model."""
        text = json.dumps(self.as_json(), indent=2) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ParityReport:
        """Read a report."""
        return cls._of_json(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def find(cls, folder: Path) -> ParityReport | None:
        """Return the report in the directory of a model; None if there is none."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            return cls.read(path)
        except (ValueError, TypeError, AttributeError):
            logger.warning("%s is not a report of the agreement with float32; ignored", FILE)
            return None

    @classmethod
    def _of_json(cls, document: Mapping[str, Any]) -> ParityReport:
        known = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        rejected, generated = document.get("rejected"), document.get("generated")
        vectors = document.get("vectors")
        parts = {
            "rejected": cls._of_json(rejected) if rejected else None,
            "generated": TextAgreement(**generated) if generated else None,
            "vectors": VectorAgreement(**vectors) if vectors else None,
        }
        return cls(**{**known, **parts})


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95% score interval of a share of `count` independent decisions.

    Tokens of one text are not independent, so that their true interval is somewhat wider.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927), 209-212.
    """
    if not count:
        return 0.0, 1.0
    scale = 1 + Z**2 / count
    center = (share + Z**2 / (2 * count)) / scale
    half = Z / scale * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return max(0.0, center - half), min(1.0, center + half)


def compare_outputs(
    expected: Iterable[Outputs],
    found: Iterable[Outputs],
    *,
    independent: bool = False,
    numbers: Sequence[str] = (),
    places: Iterable[str] = (),
    labels: Sequence[str] = (),
) -> ParityReport:
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
        for output in _outputs(row, other, independent, numbers, labels):
            here = list(output.changes(place))
            decisions += output.equal.size
            changed += len(here)
            close_calls += sum(change.is_close_call for change in here)
            changes = nlargest(NAMED_CHANGES, [*changes, *here], key=_margin)
            difference = max(difference, output.score_difference())
    agreement = 1 - changed / decisions
    return ParityReport(rows, decisions, agreement, difference, close_calls, changes=tuple(changes))


def _margin(change: Change) -> float:
    return math.inf if change.margin is None else change.margin


def _outputs(
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
