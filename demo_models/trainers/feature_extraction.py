"""MiniLM as it is pretrained, for the vectors of tokens."""

from demo_models.retrieval import Retrieval

TRAINER = Retrieval()
