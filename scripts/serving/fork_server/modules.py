"""What every worker imports, in an order in which it imports."""

from __future__ import annotations

# Modules of other packages. Most time is in torch, transformers and captum. Not here:
# - `ts`, whose modules read variables that TorchServe sets for each worker;
# - onnxruntime, which starts a thread when it is imported;
# - what only some formats need, such as openvino.
PACKAGES = (
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
    "transformers.utils.sentencepiece_model_pb2_new",
    "captum.attr",
    "llguidance.hf",
)

# Modules of the kit, for archives with the same. `.*` is for all modules of a package.
HANDLERS = (
    "handlers.compat.torchserve",
    "handlers.explainers.*",
    "handlers.explainers.targets.*",
    "handlers.formats.pretrained",
    "handlers.protocols.*",
    "handlers.runtime.request_broadcast",
    "handlers.runtime.threads",
    "handlers.runtime.worker_exit",
    "handlers.telemetry.tracing",
    "handlers.torchserve.*",
    "handlers.worker_start",
)
MODULES = PACKAGES + HANDLERS
