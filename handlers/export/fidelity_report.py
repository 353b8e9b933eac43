"""The agreement of a model with its checkpoint in float32."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..config.documents import read_json

logger = logging.getLogger(__name__)

FILE = "quality.json"
# A decision whose two best scores differ by less can change with any rounding.
CLOSE_CALL = 0.05
# Quantile of the normal distribution for an interval of 95%.
Z = 1.96


@dataclass(frozen=True)
class Change:
    """A decision that differs from the checkpoint's.

    Attributes:
        place: the file and line of the sample, with the token or output; never its text.
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
class TextFidelity:
    """The comparison of greedy texts, generated concurrently, with the texts of `generate`.

    Attributes:
        equal_texts: how many of them are equal.
        tokens: the number of tokens of all texts, each up to the first token that differs. What
            follows it continues another text.
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
        return self.describe("greedy texts that are generated concurrently", "`generate`")

    def describe(self, texts: str, others: str) -> str:
        """Return the comparison of texts with others in words."""
        return (
            f"{texts} have {self.token_agreement:.2%} of {self.tokens} tokens of {others}"
            f" ({self.equal_texts} of {self.texts} texts are equal)"
        )


@dataclass(frozen=True)
class VectorFidelity:
    """The comparison of the vectors of two models for the same texts.

    Attributes:
        cosine: the mean cosine of both vectors of a text, or of a token.
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
class FidelityReport:
    """The comparison of two models on the same rows.

    Attributes:
        decisions: the number of decisions: one for each text, token, or start and end of an answer.
        close_calls: how many of the changed decisions have a margin below `CLOSE_CALL`.
        dtype: the dtype that the compared model computes in; None in reports of earlier versions.
        rejected: the report of the dtype that `dtype: auto` selects, if the agreement was too low
            and float32 is served instead.
        generated: the comparison of texts, with `continuousBatching`.
        cached: the comparison of texts that begin alike, generated with their beginning cached and
            without, with `enable_prefix_caching`.
        vectors: the comparison of vectors, of a mode without labels, which has no decisions.
        changes: the changed decisions with the largest margins. They are not written to the file.
    """

    rows: int
    decisions: int
    label_agreement: float
    largest_score_difference: float
    close_calls: int = 0
    dtype: str | None = None
    rejected: FidelityReport | None = None
    generated: TextFidelity | None = None
    cached: TextFidelity | None = None
    vectors: VectorFidelity | None = None
    changes: tuple[Change, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        rejected = f"; in {self.rejected.dtype} it {self.rejected}" if self.rejected else ""
        return f"{self.vectors or self._decided()}{rejected}"

    def _decided(self) -> str:
        low, high = self.interval
        calls = f"; {self.close_calls} of the {self.changed} that differ are close calls"
        close = calls if self.changed else ""
        generated = f"; {self.generated}" if self.generated else ""
        if self.cached:
            alike = "greedy texts that begin alike and share its cache"
            generated += f"; {self.cached.describe(alike, 'the texts without')}"
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
        texts = filter(None, (self.generated, self.cached))
        return self.agreement >= min_agreement and all(
            each.interval[1] >= min_agreement for each in texts
        )

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
    def read(cls, path: Path) -> FidelityReport:
        """Read a report."""
        return cls.from_json(read_json(path))

    @classmethod
    def find(cls, folder: Path) -> FidelityReport | None:
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
    def from_json(cls, document: Mapping[str, Any]) -> FidelityReport:
        """Return the report of a document; keys of other versions are left out."""
        known = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        kinds: Mapping[str, Any] = {
            "rejected": cls.from_json,
            "generated": lambda found: TextFidelity(**found),
            "cached": lambda found: TextFidelity(**found),
            "vectors": lambda found: VectorFidelity(**found),
        }
        parts = {
            name: read(document[name]) if document.get(name) else None
            for name, read in kinds.items()
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
