"""The share of each request in the time for the explanations of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from handlers.errors import DeadlineExceeded, RequestError, Unprocessable
from handlers.process.deadline import Deadline


def weights_of(owners: Sequence[int]) -> list[float]:
    """Return the weight of each item; the weights of the items of one owner sum to 1."""
    counts = Counter(owners)
    return [1 / counts[owner] for owner in owners]


class TimeShares:
    """Divides the time that is left among items; what one does not use is left for later ones.

    Args:
        deadline: the time limit of all items.
        weights: the weight of each item.
        cheaper: how to ask for what takes less time, for errors.
    """

    def __init__(self, deadline: Deadline, weights: Sequence[float], cheaper: str) -> None:
        self.deadline = deadline
        self._cheaper = cheaper
        self._alone = sum(weights) < 1.5
        self._left = sum(weights)

    def take(self, weights: Sequence[float]) -> Deadline:
        """Return the time limit of some items that run together.

        Of several a part is kept in case that one takes too long: the others run again alone.
        """
        weight = sum(weights)
        kept = max(weights) if len(weights) > 1 and not self._alone else 0.0
        parts = max(1.0, (self._left + kept) / weight)
        self._left -= weight
        return self.deadline.share(parts)

    def give_back(self, weights: Sequence[float]) -> None:
        """Count items that will run again."""
        self._left += sum(weights)

    def timed_out(self, method: str, share: Deadline) -> RequestError:
        """Return the error of an item that was not finished in its share.

        With the whole time, the request is too expensive for this model; with a part, it may be
        finished in another batch.
        """
        seconds = self.deadline.seconds
        if self._alone:
            return Unprocessable(
                f"{method} did not finish within explain_timeout, {seconds:g} s; {self._cheaper}."
            )
        return DeadlineExceeded(
            f"{method} did not finish within {share.seconds:.3g} s, its share of explain_timeout,"
            f" {seconds:g} s for the whole batch; send it again, {self._cheaper}."
        )
