"""The fields of a form that come several times: the later ones have names of their own in a row.

TorchServe's worker puts the fields of a request into a dictionary, where the last one of a name
would be the only one. So the second field `image` of a form is `image␀1` in a row, the third
`image␀2`; `␀` is the character with the code 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

SEPARATOR = "\x00"
# The end of the name of a field whose value is a list, even if it comes once.
LIST = "[]"


def distinct_names(names: Iterable[str]) -> Iterator[str]:
    """Yield names, each followed by its number where it came before."""
    seen = Counter[str]()
    for name in names:
        yield f"{name}{SEPARATOR}{seen[name]}" if seen[name] else name
        seen[name] += 1


def name_in_form(name: str) -> str:
    """Return the name of a field as the client sent it."""
    return name.partition(SEPARATOR)[0]
