"""The grammar of a list of arguments, of which some may be left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from ..structural_tag import EMPTY, Format, any_of, literal, sequence
from .base import NAME

# The maximum number of undeclared arguments of a call in a structural tag.
MAX_OTHERS = 8
NAME_PATTERN = NAME[1:-1]


def other_name(declared: Iterable[str]) -> str:
    """Return the Lark expression of the name of an undeclared argument."""
    known = " | ".join(map(json.dumps, declared))
    return f"/{NAME_PATTERN}/" + (f" & ~({known})" if known else "")


def lark_list(pairs: Sequence[tuple[str, bool]], comma: str, other: str | None = None) -> str:
    """Return the Lark expression of rules one after another, of which some may be left out.

    Args:
        pairs: the names of the rules, and whether each is always there.
        comma: the Lark expression of the text between two of them.
        other: the rule of what follows any number of times; None for nothing.
    """
    last = f"({comma} {other})*" if other else ""
    if not comma:
        return " ".join([*(name if kept else f"{name}?" for name, kept in pairs), last]) or '""'
    first = next((at for at, (_, required) in enumerate(pairs) if required), None)
    if first is None:
        starts = range(len(pairs))
        lists = [" ".join([pairs[at][0], *_following(pairs[at + 1 :], comma)]) for at in starts]
        lists += [other] if other else []
        return " | ".join([*(f"{each} {last}" for each in lists), '""'])
    before = (f"({name} {comma})?" for name, _ in pairs[:first])
    return " ".join([*before, pairs[first][0], *_following(pairs[first + 1 :], comma), last])


def _following(pairs: Sequence[tuple[str, bool]], comma: str) -> list[str]:
    return [f"({comma} {name}){'' if required else '?'}" for name, required in pairs]


def list_format(
    pairs: Mapping[str, Format], required: Iterable[str], comma: str, other: Format | None = None
) -> Format:
    """Return the format of pairs one after another, of which some may be left out.

    Args:
        other: the format of what follows a few times; None for nothing.
    """
    names, kept = list(pairs), set(required)
    listed = {name: pairs[name] for name in names}
    for number in range(MAX_OTHERS if other else 0):
        # No argument has a number as its name.
        listed[f"\0{number}"] = other or EMPTY
    names = list(listed)
    if not comma:
        parts = [listed[name] if name in kept else any_of(listed[name], EMPTY) for name in names]
        return sequence(*parts) if parts else EMPTY
    first = next((at for at, name in enumerate(names) if name in kept), None)
    if first is None:
        lists = [_list_from(listed, names[at:], (), comma) for at in range(len(names))]
        return any_of(*lists, EMPTY)
    before = [any_of(sequence(listed[name], literal(comma)), EMPTY) for name in names[:first]]
    return sequence(*before, _list_from(listed, names[first:], kept, comma))


def _list_from(
    pairs: Mapping[str, Format], names: Sequence[str], required: Iterable[str], comma: str
) -> Format:
    """Return the format of pairs of which the first is always there."""
    following = [(name, sequence(literal(comma), pairs[name])) for name in names[1:]]
    rest = [each if name in required else any_of(each, EMPTY) for name, each in following]
    return sequence(pairs[names[0]], *rest)
