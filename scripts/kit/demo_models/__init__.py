"""The demo models: small, trained on texts that the kit generates, without a hub."""

from scripts.kit.demo_models.making import MODES, Made, ensure, make, make_all
from scripts.kit.demo_models.score import Score

__all__ = ["MODES", "Made", "Score", "ensure", "make", "make_all"]
