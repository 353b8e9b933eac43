"""An image classifier on LitServe as its documentation recommends, with batches and fast queue.

    python litserve_images_api.py CHECKPOINT DTYPE PORT BATCH_SIZE BATCH_TIMEOUT

It runs in a separate virtual environment and imports nothing from this repository.
"""

# No postponed annotations: LitServe evaluates those of decode_request.
import base64
import sys
from io import BytesIO
from typing import Any

import litserve
import torch
from PIL import Image
from transformers import AutoModelForImageClassification

# The public name refuses without torchvision, whose wheels need a torch for CUDA.
from transformers.models.auto.image_processing_auto import AutoImageProcessor


class ImageClassifier(litserve.LitAPI):
    """Decodes the image of each request, and preprocesses a batch of them."""

    checkpoint: str
    dtype: torch.dtype

    def setup(self, device: str) -> None:
        """Load the checkpoint."""
        self.processor = AutoImageProcessor.from_pretrained(self.checkpoint)
        model = AutoModelForImageClassification.from_pretrained(self.checkpoint, dtype=self.dtype)
        self.model = model.to(device).eval()

    def decode_request(self, request: dict[str, Any]) -> Image.Image:
        """Return a request's image."""
        return Image.open(BytesIO(base64.b64decode(request["inputs"]))).convert("RGB")

    @torch.inference_mode()
    def predict(self, images: list[Image.Image]) -> list[list[dict[str, Any]]]:
        """Return the five best labels of each image with their scores."""
        pixels = self.processor(images=images, return_tensors="pt")["pixel_values"]
        logits = self.model(pixel_values=pixels.to(self.model.device, self.dtype)).logits
        scores, labels = logits.float().softmax(dim=-1).topk(5)
        names = self.model.config.id2label
        return [
            [{"label": names[label], "score": score} for label, score in zip(*row, strict=True)]
            for row in zip(labels.tolist(), scores.tolist(), strict=True)
        ]

    def encode_response(self, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the JSON of a response."""
        return output


def main(checkpoint: str, dtype: str, port: str, batch_size: str, batch_timeout: str) -> None:
    """Run the server."""
    api = ImageClassifier(max_batch_size=int(batch_size), batch_timeout=float(batch_timeout))
    api.checkpoint, api.dtype = checkpoint, getattr(torch, dtype)
    server = litserve.LitServer(
        api, accelerator="cpu", devices=1, workers_per_device=1, timeout=600, fast_queue=True
    )
    server.run(host="127.0.0.1", port=int(port), log_level="warning", generate_client_file=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
