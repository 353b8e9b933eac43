"""The demo models: small, trained on synthetic texts, images and sounds, without a model hub."""

from hf_serve.demo_models.evaluation import Score
from hf_serve.demo_models.making import MODES, Made, ensure, make, make_all

__all__ = ["MODES", "Made", "Score", "ensure", "make", "make_all"]
