"""MiniLM as it is pretrained, for the similarity of texts."""

from typing import Any

from hf_serve.demo_models.retrieval import Retrieval
from hf_serve.demo_models.synthetic_text.searches import searches


class SentenceSimilarity(Retrieval):
    """MiniLM, measured by the passages that it finds."""

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write questions, each with the passage that answers it and with another one."""
        return [
            {"source_sentence": row.question, "sentences": row.passages}
            for row in searches("held_out", rows // 4, 2, seed)
        ]


TRAINER = SentenceSimilarity()
