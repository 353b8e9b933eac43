"""The demo models: small, trained on synthetic texts, images and sounds, without a model hub."""

from demo_models.evaluation import Score
from demo_models.making import MODES, Made, ensure, make, make_all

__all__ = ["MODES", "Made", "Score", "ensure", "make", "make_all"]
