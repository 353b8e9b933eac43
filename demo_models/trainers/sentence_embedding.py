"""MiniLM as it is pretrained, for the vectors of texts."""

from demo_models.retrieval import Retrieval

TRAINER = Retrieval()
