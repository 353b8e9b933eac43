"""Scenes: who does what in which place, in English and in German."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from random import Random

from hf_serve.demo_models.synthetic_text.grammar import Split

PEOPLE = ("Nina", "Tom", "Ada", "Eva", "Paul", "Olive", "Hugo", "Mina", "Otto", "Greta")
VERBS = {
    "sings": "singt",
    "reads": "liest",
    "works": "arbeitet",
    "waits": "wartet",
    "sleeps": "schläft",
    "dances": "tanzt",
    "writes": "schreibt",
    "cooks": "kocht",
}
KINDS = {
    "old": "alten",
    "new": "neuen",
    "small": "kleinen",
    "large": "großen",
    "quiet": "stillen",
    "warm": "warmen",
    "red": "roten",
    "famous": "berühmten",
}
PLACES = {
    "bar": "Bar",
    "town": "Stadt",
    "kitchen": "Küche",
    "school": "Schule",
    "church": "Kirche",
    "hall": "Halle",
    "street": "Straße",
    "factory": "Fabrik",
}
# One combination of words in this many is held out.
SHARE = 5


@dataclass(frozen=True)
class Scene:
    """One sentence, as its words."""

    person: str
    verb: str
    kind: str
    place: str

    @property
    def english(self) -> str:
        """The sentence."""
        return f"{self.person} {self.verb} {self.where}."

    @property
    def german(self) -> str:
        """The sentence in German."""
        place = f"{KINDS[self.kind]} {PLACES[self.place]}"
        return f"{self.person} {VERBS[self.verb]} in der {place}."

    @property
    def where(self) -> str:
        """The place."""
        return f"in the {self.kind} {self.place}"

    @property
    def short(self) -> str:
        """Who does what."""
        return f"{self.person} {self.verb}"


def scenes(split: Split, count: int, seed: int) -> list[Scene]:
    """Draw sentences; those that are held out have known words in new combinations."""
    everything = [Scene(*words) for words in product(PEOPLE, VERBS, KINDS, PLACES)]
    held_out = set(Random(0).sample(everything, len(everything) // SHARE))
    drawn = [scene for scene in everything if (scene in held_out) == (split == "held_out")]
    return Random(f"scenes {split} {seed}").choices(drawn, k=count)


def pairs_of_scenes(split: Split, count: int, seed: int) -> list[tuple[Scene, Scene]]:
    """Draw two sentences at a time, about different people who do different things."""
    drawn = scenes(split, 4 * count, seed)
    pairs = zip(drawn[::2], drawn[1::2], strict=True)
    return [
        (one, other)
        for one, other in pairs
        if one.person != other.person and one.verb != other.verb
    ][:count]
