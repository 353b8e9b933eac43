"""Sequences that grow at their end, and share their items with the shorter ones before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar, overload

Item = TypeVar("Item")


class Growing(Sequence[Item], Generic[Item]):
    """An immutable sequence; one with one more item takes no copy of the others.

    Args:
        items: the items.
    """

    def __init__(self, items: Sequence[Item] = ()) -> None:
        # Longer sequences append to the list, of which this one has the beginning.
        self._items, self._length = list(items), len(items)

    def plus(self, item: Item) -> Growing[Item]:
        """Return the sequence with one more item."""
        if len(self._items) > self._length:  # Another one has grown from this one.
            return Growing([*self, item])
        longer: Growing[Item] = Growing.__new__(Growing)
        longer._items, longer._length = self._items, self._length + 1
        self._items.append(item)
        return longer

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> list[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | list[Item]:
        if isinstance(place, slice):
            return [self._items[each] for each in range(*place.indices(self._length))]
        return self._items[range(self._length)[place]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Growing | tuple):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Growing({list(self)!r})"
