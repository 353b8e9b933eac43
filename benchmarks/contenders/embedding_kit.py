"""This kit with an embedding model, called as OpenAI's client does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from benchmarks.contenders.kit import Kit, sources
from benchmarks.contenders.openai_embeddings import embeddings_body

MODE = "sentence_embedding"


class EmbeddingKit(Kit):
    """A YAML file of sentence embeddings, behind `/v1/embeddings`."""

    @property
    def url(self) -> str:
        return f"{super().url}/1.0/v1/embeddings"

    def body(self, inputs: Any) -> str:
        return embeddings_body(inputs)


def embedding_sources(work: Path) -> dict[str, Path]:
    """Return the YAML files by contender name: those of the repository, and one in float32."""
    found = sources(MODE)
    document = yaml.safe_load(found["kit"].read_text(encoding="utf-8"))
    document["handler"]["dtype"] = "float32"
    exact = work / "configs" / f"{MODE}_float32.yaml"
    exact.parent.mkdir(parents=True, exist_ok=True)
    exact.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return {**found, "kit_float32": exact}
