"""MiniLM as it is pretrained, for the vectors of tokens."""

from hf_serve.demo_models.retrieval import Retrieval

TRAINER = Retrieval()
