"""A sequence classifier on LitServe as its documentation recommends, with batches and fast queue.

    python litserve_api.py CHECKPOINT DTYPE PORT BATCH_SIZE BATCH_TIMEOUT

It runs in a separate virtual environment and imports nothing from this repository.
"""

# No postponed annotations: LitServe evaluates those of decode_request.
import sys
from typing import Any

import litserve
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


class Classifier(litserve.LitAPI):
    """Pads a batch to its longest row, as is usual with LitServe."""

    checkpoint: str
    dtype: torch.dtype

    def setup(self, device: str) -> None:
        """Load the checkpoint."""
        self.tokenizer = AutoTokenizer.from_pretrained(self.checkpoint)
        model = AutoModelForSequenceClassification.from_pretrained(
            self.checkpoint, dtype=self.dtype
        )
        self.model = model.to(device).eval()

    def decode_request(self, request: dict[str, Any]) -> str:
        """Return a request's text."""
        return str(request["inputs"])

    @torch.inference_mode()
    def predict(self, texts: list[str]) -> list[dict[str, Any]]:
        """Return the best label of each text with its score."""
        batch = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        logits = self.model(**batch.to(self.model.device)).logits
        scores, labels = logits.float().softmax(dim=-1).max(dim=-1)
        names = self.model.config.id2label
        return [
            {"label": names[label], "score": score}
            for label, score in zip(labels.tolist(), scores.tolist(), strict=True)
        ]

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON of a response."""
        return output


def main(checkpoint: str, dtype: str, port: str, batch_size: str, batch_timeout: str) -> None:
    """Run the server."""
    api = Classifier(max_batch_size=int(batch_size), batch_timeout=float(batch_timeout))
    api.checkpoint, api.dtype = checkpoint, getattr(torch, dtype)
    server = litserve.LitServer(
        api, accelerator="cpu", devices=1, workers_per_device=1, timeout=600, fast_queue=True
    )
    server.run(host="127.0.0.1", port=int(port), log_level="warning", generate_client_file=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
