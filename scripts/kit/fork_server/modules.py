"""Packages that every worker imports, in an order in which they import."""

from __future__ import annotations

# Most time is in torch, transformers and captum. `handlers` is in each archive. Not here:
# - `ts`, whose modules read variables that TorchServe sets for each worker;
# - onnxruntime, which starts a thread when it is imported;
# - what only some formats need, such as openvino.
MODULES = (
    "yaml",
    "numpy",
    "torch",
    "pydantic.json_schema",
    "pydantic.type_adapter",
    "psutil",
    "PIL.Image",
    "httpx",
    "jinja2",
    "safetensors.torch",
    "tokenizers",
    "transformers.modeling_utils",
    "transformers.generation.utils",
    "transformers.generation.continuous_batching",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.processing_auto",
    "transformers.models.mbart.tokenization_mbart",
    "transformers.models.mbart50.tokenization_mbart50",
    "transformers.models.nllb.tokenization_nllb",
    "captum.attr",
    "llguidance.hf",
)
