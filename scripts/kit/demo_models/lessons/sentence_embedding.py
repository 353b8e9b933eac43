"""MiniLM as it is pretrained, for the vectors of texts."""

from scripts.kit.demo_models.retrieval import Retrieval

LESSON = Retrieval()
