"""The `handler` and `pt2` sections of a model-config.yaml, which the handler reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from ..registry import FORMATS, TASKS, Registry
from .messages import enumerate_names, quote, suggest
from .task_aliases import suggest_mode

EngineName = Literal["vllm"]
DType = Literal["float32", "bfloat16", "float16", "auto"]
Hardware = Literal["neuron", "neuronx"]
DeviceMapPolicy = Literal["auto", "balanced", "balanced_low_0", "sequential"]
Quantization = Literal["int8", "int8_weights", "int4_weights"]
# Families of causal rerankers; `handlers/checkpoints/ranking_template.py` has their templates.
RankingTemplateName = Literal["qwen3_reranker", "mxbai_rerank_v2", "bge_reranker_gemma", "zerank"]
# Families of models by how they write their thoughts; `handlers/generation/reasoning.py` has them.
ReasoningParser = Literal[
    "none",
    "qwen3",
    "deepseek_r1",
    "deepseek_v3",
    "glm45",
    "smollm3",
    "minimax_m2",
    "nemotron",
    "granite",
    "granite3_3",
    "mistral",
    "gemma4",
    "gpt_oss",
    "seed_oss",
    "minimax_m3",
    "cohere",
    "cohere_command4",
    "ernie45",
    "exaone_deep",
    "apertus",
    "apriel",
    "hunyuan_a13b",
]
# Families of models by how they write tool calls; `handlers/generation/tool_syntaxes` has them.
ToolCallParser = Literal[
    "hermes",
    "mistral",
    "mistral_args",
    "mistral_call_id",
    "llama3_json",
    "pythonic",
    "lfm2",
    "qwen3_coder",
    "seed_oss",
    "glm47",
    "glm45",
    "minimax_m2",
    "minimax",
    "hunyuan_a13b",
    "kimi_k2",
    "cohere",
    "olmo3",
    "apertus",
    "nemotron",
    "functools",
    "gemma4",
    "functiongemma",
    "granite",
    "phi4_mini_json",
    "deepseek_v3",
    "deepseek_v31",
    "openai",
]
# Families of guard models; `handlers/generation/guards.py` has their answers.
GuardFamilyName = Literal["llama_guard", "qwen3guard", "granite_guardian", "shieldgemma"]
# Keys that change nothing without another one.
NEEDED_KEYS = {"vllm_python": "engine", "assistant_revision": "assistant_model"}
# The keys that go with `mode: custom`.
KEYS_OF_CUSTOM_MODE = {
    "mode",
    "custom",
    "model_name",
    "revision",
    "predict_timeout",
    "max_image_pixels",
}
# The `mode` whose labels may stand for categories of moderation.
MODERATING_MODE = "sequence_classification"
# The `mode` of guard models.
GUARD_MODE = "text_generation"
# The `temperature` that packing measures.
MEASURED = "measured"
# The `save_mode` that is another one, chosen when a model is packed.
AUTO = "auto"


def modes() -> list[str]:
    """Return the values of `mode`, one for each task."""
    return sorted(TASKS)


def save_modes() -> list[str]:
    """Return the values of `save_mode`, one for each format."""
    return sorted(FORMATS)


class _Section(BaseModel):
    # YAML has `.inf` and `.nan`, which are no limits that can be compared and waited for.
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )


class Tokenizer(_Section):
    """The `tokenizer` section; omitted keys keep the checkpoint's value."""

    truncation_side: Literal["left", "right"] | None = Field(
        default=None,
        description="Side on which a long text is cut. Default for `text_generation`: `left`.",
    )
    add_prefix_space: bool | None = Field(
        default=None,
        description="Adds a space before the first word (byte-level BPE tokenizers).",
    )
    strip_accents: bool | None = Field(
        default=None, description="Removes accents before the text is split (BERT tokenizers)."
    )
    model_max_length: PositiveInt | None = Field(
        default=None,
        description="Token limit of the tokenizer, where the checkpoint has none or a wrong one.",
    )


# Names of adapters are folders, and words in requests.
ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# A host name, perhaps with a port; `*.` stands for all names below it.
MEDIA_HOST = re.compile(r"(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?")
# The format of the checkpoint itself; all other formats are exported from it.
CHECKPOINT = "pretrained"
# The folder of an archive with the draft model.
ASSISTANT_FOLDER = "assistant_model"
# The `mode` of a model that the file of `custom` loads.
CUSTOM_MODE = "custom"
# The folder of the file of `custom` in an archive.
CUSTOM_FOLDER = "custom"


class ModelKeys(_Section):
    """The model: its checkpoint, its task, its format and its place."""

    mode: str = Field(
        description="Task of the model: the name of a file in `handlers/tasks/`, or `custom` for a "
        "model that the file of `custom` loads."
    )
    model_name: str | None = Field(
        default=None,
        description="Model id on the Hugging Face Hub, or a local folder with a checkpoint, "
        "whose path is relative to the YAML or else to the working folder. "
        "Without it, the checkpoint is read from `artifacts/models/<YAML name>/`.",
    )
    revision: str | None = Field(
        default=None,
        description="Commit, tag or branch to download. Without it, `main`.",
    )
    save_mode: str = Field(
        default=CHECKPOINT,
        description="Format of the packed model: the name of a file in `handlers/formats/`. `auto` "
        "is the one that is fastest where the model runs, chosen when it is packed.",
    )
    dtype: DType = Field(
        default="float32",
        description="Data type of the computation. `auto` selects bfloat16 where the hardware "
        "supports it, and float32 where bfloat16 changes too many labels. `onnx` always computes "
        "in float32; `openvino`, `torchscript` and `torch_export` keep what the packing machine "
        "selected.",
    )
    device_map: dict[str, int | str] | DeviceMapPolicy | None = Field(
        default=None,
        description="Placement of layers by module name: `cpu`, `disk` or an accelerator number. "
        "Or a strategy of Accelerate.",
    )
    model_parallel: bool = Field(
        default=False,
        description="Distributes the layers evenly over the visible accelerators.",
    )
    allow_pickle: bool = Field(
        default=False,
        description="Accepts `pytorch_model.bin` where there are no safetensors. Pickle files "
        "can run code when they load.",
    )
    custom: str | None = Field(
        default=None,
        description="Python file with your own code, relative to the YAML or in the checkpoint: "
        "`preprocess(request)`, `postprocess(result)` or a class `Task`, Hugging Face's "
        "`EndpointHandler`, or the functions of SageMaker's `inference.py`. It is packed into the "
        "archive.",
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Default request parameters of this model, for example `{top_k: 3}`.",
    )
    captum_explanation: bool = Field(
        default=True,
        description="Whether `/explanations` is available. With `save_mode: openvino` and "
        "`continuousBatching`, `false` leaves the weights of the checkpoint out of the archive, "
        "which also generate texts with parameters that openvino-genai lacks.",
    )
    health_check: bool = Field(
        default=True,
        description="Predicts the sample of the mode at load, and after a request got status"
        " 500 or 507. A worker that cannot answer it does not start, or ends.",
    )

    @field_validator("mode")
    @classmethod
    def _check_mode(cls, mode: str) -> str:
        if mode == CUSTOM_MODE or mode in TASKS:
            return mode
        raise ValueError(f"is {mode!r}; {suggest_mode(mode, modes())}")

    @field_validator("custom")
    @classmethod
    def _check_custom(cls, custom: str | None) -> str | None:
        if custom is not None and not custom.endswith(".py"):
            raise ValueError(f"custom is {quote(custom)}, which is no Python file; name it *.py")
        return custom

    @field_validator("save_mode")
    @classmethod
    def _check_save_mode(cls, save_mode: str) -> str:
        return save_mode if save_mode == AUTO else _check_choice(save_mode, FORMATS, AUTO)


class LimitKeys(_Section):
    """Limits of requests and batches to models of all kinds."""

    max_rows: PositiveInt = Field(
        default=128, description="Maximum items of one request, or windows of one context."
    )
    max_request_rows: PositiveInt | None = Field(
        default=None,
        description="Maximum rows of one request: its items, each window of a long text and each "
        "sequence of a prompt counted. Without it, 8 times `max_rows`, and at least "
        "`max_sequences`.",
    )
    predict_timeout: PositiveFloat | None = Field(
        default=None,
        description="Maximum seconds for the predictions of one batch. Without it, 80% of "
        "`responseTimeout`, or of what `explain_timeout` leaves in a batch with explanations.",
    )
    explain_timeout: PositiveFloat | None = Field(
        default=None,
        description="Maximum seconds for the explanations of one batch. Without it, half of "
        "`responseTimeout`, or 80% of what a long `predict_timeout` leaves. At most 80% of "
        "`responseTimeout` without `predict_timeout`.",
    )


class ExportKeys(_Section):
    """Exported, quantized and rounded models."""

    explain_with_checkpoint: bool = Field(
        default=False,
        description="Whether the archive of an exported model also has the weights of the "
        "checkpoint. The first explanation loads them, and all methods are available, as with "
        "`save_mode: pretrained`.",
    )
    quantization: Quantization | None = Field(
        default=None,
        description="Quantization with `save_mode: openvino`. `int8` quantizes weights and "
        "activations and needs calibration rows; the others quantize weights only.",
    )
    calibration: str | None = Field(
        default=None,
        description="JSON Lines file of requests, relative to the YAML. Quantization is "
        "calibrated with it, and every model that is not exact is measured on it. Without it, rows "
        "of this repository.",
    )
    min_agreement: float = Field(
        default=0.99,
        ge=0,
        le=1,
        description="Share of labels on which the packed model must agree with the checkpoint in "
        "float32. Packing fails below it. With `0`, everything is quantized, and `pretrained` is "
        "not measured.",
    )
    labelled: str | None = Field(
        default=None,
        description="JSON Lines file of questions with their answers, relative to the YAML. The "
        "calibration of decisions is measured with it when the model is packed.",
    )
    temperature: PositiveFloat | Literal["measured"] | None = Field(
        default=None,
        description="Divides the logits of decisions: a number, or `measured` for the temperature "
        "that packing found with `labelled`.",
    )
    batch_size: PositiveInt | None = Field(
        default=None,
        description="Rows of a Neuron graph, whose shape is fixed. Without it, `batchSize`.",
    )

    @field_validator("batch_size", mode="before")
    @classmethod
    def _parse_quoted_number(cls, value: Any) -> Any:
        """Read `batch_size: "4"`, as in TorchServe's example."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value


class TextKeys(_Section):
    """Models that read texts."""

    max_length: PositiveInt | None = Field(
        default=None,
        description="Maximum tokens of a text, or of one window of a context. For "
        "`text_generation` also the default number of new tokens. Without it, the model's limit.",
    )
    truncation: bool | None = Field(
        default=None,
        description="Whether a longer text is cut. `false` refuses it with status 413. Without "
        "it, `true`, and `false` for modes that generate texts.",
    )
    tokenizer: Tokenizer = Field(
        default=Tokenizer(), description="Settings of the tokenizer, see below."
    )
    prompts: dict[str, str] = Field(
        default_factory=dict,
        description="Prompts that precede texts, by the names that requests use, for "
        "`sentence_embedding` and `sentence_similarity`: `{query: 'query: ', passage: 'passage: '}`"
        ". A prompt of the checkpoint with the same name is replaced, others stay.",
    )
    do_lower_case: bool | None = Field(
        default=None,
        description="Forces lower-casing on or off. Without it, the tokenizer's own setting.",
    )
    max_characters: PositiveInt = Field(
        default=200_000, description="Maximum characters of one text."
    )
    max_batch_tokens: PositiveInt | None = Field(
        default=None,
        description="Maximum tokens in one forward pass, padding included. Without it, 1024, on "
        "accelerators 4096 for predictions, 16384 where attention has variable length, and 8192 "
        "for modes that generate texts.",
    )
    cuda_graphs: bool = Field(
        default=True,
        description="Runs packed texts on an NVIDIA GPU as CUDA graphs, where attention has "
        "variable length. `false` loads faster and needs less memory.",
    )
    warmup_lengths: list[PositiveInt] = Field(
        default_factory=list,
        description="Text lengths in tokens that run once at load. Without it, `[16, 48]`.",
    )
    ranking_template: RankingTemplateName | None = Field(
        default=None,
        description="For `sentence_ranking` with a causal model: the family whose template it reads"
        " pairs in. Without it, the checkpoint's own template of a query and a document, or that of"
        " the family that `model_name` has.",
    )
    BetterTransformer: bool = Field(
        default=True,
        description="Packs several texts into one row, so that no padding is computed, where the "
        "model supports it. `false` pads.",
    )


class ClassifierKeys(_Section):
    """Models with a head of labels."""

    num_labels: NonNegativeInt | None = Field(
        default=None,
        description="Checked against the checkpoint. With `allow_random_head: true`, the size of "
        "the new head; with `adapters`, of the head that a checkpoint without one lacks.",
    )
    allow_random_head: bool = Field(
        default=False,
        description="Serves a base checkpoint whose task head is not trained.",
    )
    moderation: dict[str, str] = Field(
        default_factory=dict,
        description="Categories of `v1/moderations` by label of the model, for "
        "`sequence_classification`; labels that it leaves out are harmless. Without it, each label "
        "of a multi-label model is a category.",
    )
    moderation_thresholds: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(
        default_factory=dict,
        description="Score from which a category of `v1/moderations` is flagged. Without it, 0.5.",
    )


class GenerationKeys(_Section):
    """Models that generate texts."""

    max_total_tokens: PositiveInt | None = Field(
        default=None,
        description="Maximum tokens of a prompt and its new text together, for `text_generation`. "
        "Without it, the model's limit.",
    )
    max_sequences: PositiveInt = Field(
        default=32,
        description="Maximum `num_return_sequences`, `n` or `num_beams` of a text.",
    )
    max_grammar_characters: PositiveInt = Field(
        default=262_144,
        description="Maximum characters of a grammar: of the schemas of all tools together, of a "
        "JSON schema, or of a regular expression.",
    )
    tool_call_parser: ToolCallParser | None = Field(
        default=None,
        description="How the model writes tool calls in a chat. Without it, as the chat template "
        "or the tokenizer's `response_schema` shows; otherwise as Hermes.",
    )
    stored_responses: NonNegativeInt = Field(
        default=0,
        description="Number of the last responses of OpenAI's `responses` that the worker keeps "
        "in memory for `previous_response_id`. Needs `maxWorkers: 1`.",
    )
    reasoning_parser: ReasoningParser | None = Field(
        default=None,
        description="How the model writes the thoughts before an answer to a chat. Without it, as "
        "the chat template or the tokenizer's `response_schema` shows; `none` for a model without "
        "thoughts.",
    )
    guard_family: GuardFamilyName | None = Field(
        default=None,
        description="Family of a guard model of `text_generation`, whose categories "
        "`v1/moderations` returns. Without it, as the chat template shows.",
    )
    adapters: dict[str, str] = Field(
        default_factory=dict,
        description="LoRA adapters of the model by the names that requests use, with `save_mode: "
        "pretrained`, for the modes of [LoRA adapters](adapters.md). Each is a model id on the "
        "Hugging Face Hub, `ORG/NAME` or `ORG/NAME@REVISION`, or a local folder.",
    )
    adapters_directory: str | None = Field(
        default=None,
        description="Folder on the server whose subfolders are further LoRA adapters, loaded when "
        "a request names one; an absolute path. See [LoRA adapters](adapters.md#while-it-serves).",
    )
    max_loaded_adapters: PositiveInt = Field(
        default=8,
        description="Maximum adapters of `adapters_directory` in memory between batches; those "
        "that were not used for the longest time are dropped.",
    )
    assistant_model: str | None = Field(
        default=None,
        description="Draft model of assisted decoding, for `text_generation` with `pretrained`: a "
        "model id or a local folder. Its tokens are those of the model.",
    )
    assistant_revision: str | None = Field(
        default=None, description="Commit, tag or branch of `assistant_model`."
    )
    max_num_seqs: PositiveInt = Field(
        default=64, description="Maximum texts that run at once, with `continuousBatching`."
    )
    max_waiting: NonNegativeInt = Field(
        default=128,
        description="Maximum texts that wait for others to end, with `continuousBatching`. Further "
        "ones get status 503 with `Retry-After`.",
    )
    cache_size: PositiveFloat | None = Field(
        default=None,
        description="Gigabytes of the key-value cache, with `continuousBatching`. Without it, what "
        "`max_num_seqs` texts of the model's limit need, and at most a quarter of the memory, on a "
        "GPU of the free memory.",
    )
    enable_prefix_caching: bool | None = Field(
        default=None,
        description="Whether texts with the same beginning share its cached tokens, with "
        "`continuousBatching`. Packing an export measures what it changes. Without it, only with "
        "`engine: vllm`.",
    )
    enable_chunked_prefill: bool | None = Field(
        default=None,
        description="Whether a prompt is read in parts, in the steps of the running texts, with "
        "`continuousBatching`. Without it, unless `save_mode: openvino` has a model of at most "
        "2,048 tokens.",
    )
    max_num_batched_tokens: PositiveInt | None = Field(
        default=None,
        description="Maximum tokens of all texts in one step, with `continuousBatching`: what the "
        "running texts leave is for parts of prompts. Without it, 256 with `pretrained` and "
        "`openvino`, and vLLM's own value with `engine: vllm`.",
    )
    engine: EngineName | None = Field(
        default=None,
        description="`vllm` runs the texts of a checkpoint with vLLM, with `continuousBatching`. "
        "Without it, `save_mode: auto` takes vLLM on NVIDIA GPUs where it is installed; `null` "
        "takes none.",
    )
    vllm_python: str | None = Field(
        default=None,
        description="Python executable of an environment with vLLM, with `engine: vllm`. Without "
        "it, the worker's own.",
    )

    @field_validator("adapters_directory")
    @classmethod
    def _check_adapters_directory(cls, directory: str | None) -> str | None:
        if directory is not None and not Path(directory).is_absolute():
            raise ValueError(f"is {quote(directory)}, which is no absolute path; begin it with /")
        return directory

    @field_validator("adapters")
    @classmethod
    def _check_adapter_names(cls, adapters: dict[str, str]) -> dict[str, str]:
        if (wrong := _first_other(adapters, ADAPTER_NAME)) is not None:
            raise ValueError(
                f"has the name {quote(wrong)}; use at most 64 letters, digits, dots, dashes and"
                " underscores, the first one a letter or a digit"
            )
        return adapters


class ImageKeys(_Section):
    """Models that read or generate images."""

    max_batch_pixels: PositiveInt | None = Field(
        default=None,
        description="Maximum pixels in one forward pass, after preprocessing, for modes that read "
        "images; an image with more is refused, unless all images of the model have as many. "
        "Without it, 1,605,632, 32 images of 224 x 224.",
    )
    max_image_pixels: PositiveInt = Field(
        default=40_000_000,
        description="Maximum pixels of one image, read from its header before it is decoded.",
    )
    max_image_bytes: PositiveInt = Field(
        default=10_000_000,
        description="Maximum bytes of the file of one image. `max_request_size` of TorchServe "
        "limits the body.",
    )
    max_images: PositiveInt = Field(
        default=8,
        description="Maximum images of one prompt or chat, for `image_text_to_text`.",
    )
    max_output_pixels: PositiveInt = Field(
        default=1_048_576,
        description="Maximum pixels of a generated image, for `text_to_image`.",
    )
    max_inference_steps: PositiveInt = Field(
        default=100, description="Maximum `num_inference_steps` of a generated image."
    )
    max_output_images: PositiveInt = Field(
        default=4, description="Maximum `num_images_per_prompt`, or `n`, of generated images."
    )


class AudioKeys(_Section):
    """Models that read or generate audio."""

    max_batch_samples: PositiveInt | None = Field(
        default=None,
        description="Maximum samples in one forward pass, for modes that read audio; for models "
        "that read spectrograms, their numbers. Longer audio is refused or read in chunks. Without "
        "it, 960,000, a minute at 16 kHz.",
    )
    max_audio_seconds: PositiveFloat = Field(
        default=600.0,
        description="Maximum seconds of one audio file, read from its header before it is decoded.",
    )
    max_audio_bytes: PositiveInt = Field(
        default=25_000_000,
        description="Maximum bytes of one audio file. `max_request_size` of TorchServe limits the "
        "body.",
    )
    max_output_seconds: PositiveFloat = Field(
        default=60.0, description="Maximum seconds of generated speech, for `text_to_speech`."
    )
    voices: dict[str, NonNegativeInt] = Field(
        default_factory=dict,
        description="Names of the speakers of a model with several, each with its `speaker_id`, "
        "for `text_to_speech`: `{alloy: 4}`.",
    )


class UrlKeys(_Section):
    """Images and audio that requests name by URLs."""

    allowed_media_hosts: list[str] = Field(
        default_factory=list,
        description="Hosts whose files are fetched where a request has a URL: "
        "`images.example.com`, `*.example.com`, `example.com:8443`. Without it, none. Addresses "
        "that are not public are never connected to.",
    )
    media_timeout: PositiveFloat = Field(
        default=5.0,
        description="Seconds in which the files of 16 URLs of a batch are fetched, then those of "
        "the next ones. Its other requests wait, too.",
    )

    @field_validator("allowed_media_hosts")
    @classmethod
    def _check_hosts(cls, hosts: list[str]) -> list[str]:
        if (wrong := _first_other(hosts, MEDIA_HOST)) is not None:
            raise ValueError(
                f"has {quote(wrong)}; write a host name, as in images.example.com, without http://"
                " and without a path"
            )
        return hosts


class LegacyKeys(_Section):
    """Keys of TorchServe's old example."""

    hardware: Hardware | None = Field(
        default=None,
        description="Key of TorchServe's old example: the same as `save_mode: neuron` or "
        "`neuronx`.",
    )
    responses: Literal["legacy"] | None = Field(
        default=None,
        description="`legacy` answers bodies of TorchServe's old example in its response shapes.",
    )
    embedding_name: str | None = Field(
        default=None,
        description="Accepted for compatibility. The embeddings are found through the model.",
    )
    profile: bool = Field(
        default=False,
        description="Accepted for compatibility. Stage times are always measured.",
    )


class HandlerSection(
    LegacyKeys,
    UrlKeys,
    AudioKeys,
    ImageKeys,
    GenerationKeys,
    ClassifierKeys,
    TextKeys,
    ExportKeys,
    LimitKeys,
    ModelKeys,
):
    """The `handler` section; its bases are the groups of its keys."""

    @model_validator(mode="before")
    @classmethod
    def _hardware_is_a_format(cls, values: Any) -> Any:
        """Read `hardware: neuronx` beside `save_mode: torchscript`, as in TorchServe's example."""
        hardware = values.get("hardware") if isinstance(values, dict) else None
        if hardware not in get_args(Hardware):
            return values
        save_mode = values.get("save_mode", hardware)
        if save_mode not in (hardware, "torchscript"):
            raise ValueError(
                f"has hardware: {hardware} and save_mode: {save_mode}"
                f"; leave hardware out, or set save_mode: {hardware}"
            )
        return {**values, "save_mode": hardware}

    @model_validator(mode="after")
    def _device_map_needs_a_checkpoint(self) -> HandlerSection:
        if not self.uses_device_map:
            return self
        is_off = "model_parallel" in self.model_fields_set and not self.model_parallel
        if self.device_map and is_off:
            raise ValueError("has device_map and model_parallel: false; leave one of them out")
        if self.is_exported:
            raise ValueError(
                f"has {'device_map' if self.device_map else 'model_parallel'} and"
                f" save_mode: {self.save_mode}, which is one graph"
                "; use save_mode: pretrained, or leave it out"
            )
        if isinstance(self.device_map, dict) and not set(self.device_map.values()) - {"disk"}:
            raise ValueError("has device_map with disk only; place at least one part on cpu")
        return self

    @model_validator(mode="after")
    def _check_needed_keys(self) -> HandlerSection:
        for key, needed in NEEDED_KEYS.items():
            if getattr(self, key) and getattr(self, needed) is None:
                raise ValueError(f"has {key} without {needed}; add {needed}, or leave {key} out")
        return self

    @model_validator(mode="after")
    def _moderation_needs_labels(self) -> HandlerSection:
        if self.guard_family and self.mode != GUARD_MODE:
            raise ValueError(
                f"has guard_family and mode: {self.mode}; use mode: {GUARD_MODE}, or leave"
                " guard_family out"
            )
        has_thresholds = self.moderation_thresholds and self.mode != GUARD_MODE
        if (self.moderation or has_thresholds) and self.mode != MODERATING_MODE:
            raise ValueError(
                f"has moderation and mode: {self.mode}; use mode: {MODERATING_MODE}, or leave"
                " moderation and its thresholds out"
            )
        return self

    @model_validator(mode="after")
    def _measured_temperature_needs_labelled(self) -> HandlerSection:
        if self.temperature == MEASURED and self.labelled is None:
            raise ValueError(
                "has temperature: measured without labelled; add labelled, or set a number"
            )
        return self

    @model_validator(mode="after")
    def _check_custom_mode(self) -> HandlerSection:
        if self.mode != CUSTOM_MODE:
            return self
        if self.custom is None:
            raise ValueError(
                "has mode: custom without custom; add custom with the name of the model's Python"
                " file"
            )
        others = sorted(self.model_fields_set - KEYS_OF_CUSTOM_MODE)
        if others:
            raise ValueError(
                f"has mode: custom and {others[0]}, which has no effect on a model that its own"
                f" code loads; leave {others[0]} out"
            )
        return self

    @model_validator(mode="after")
    def _check_default_adapter(self) -> HandlerSection:
        default = self.parameters.get("adapter_id")
        in_directory = self.adapters_directory is not None
        if default is not None and default not in self.adapters and not in_directory:
            known = enumerate_names(self.adapters) or "none"
            raise ValueError(
                f"has parameters.adapter_id {quote(default)}; the names of adapters are {known}"
            )
        return self

    @cached_property
    def request_rows(self) -> int:
        """The maximum number of rows of one HTTP request, windows included."""
        return self.max_request_rows or max(8 * self.max_rows, self.max_sequences)

    @property
    def is_exported(self) -> bool:
        """Whether the model is exported from a checkpoint to another format; of `auto`, no."""
        return self.save_mode not in (CHECKPOINT, AUTO)

    @property
    def assistant(self) -> HandlerSection | None:
        """The section of the draft model alone; None without one."""
        if self.assistant_model is None:
            return None
        names = {"model_name": self.assistant_model, "revision": self.assistant_revision}
        return self.model_copy(update={**names, "assistant_model": None, "adapters": {}})

    @property
    def may_lack_head(self) -> bool:
        """Whether a checkpoint without the head of its mode is served: adapters may have one."""
        return self.allow_random_head or self.takes_adapters

    @property
    def takes_adapters(self) -> bool:
        """Whether requests may choose LoRA adapters."""
        return bool(self.adapters) or self.adapters_directory is not None

    @property
    def uses_device_map(self) -> bool:
        """Whether the layers are distributed over several devices."""
        return self.model_parallel or self.device_map is not None


class Compile(_Section):
    """The `pt2.compile` section: `enable` and the keyword arguments of `torch.compile`."""

    enable: bool = Field(default=False, description="Compiles the model at load.")
    backend: str = Field(default="inductor", description="Backend of `torch.compile`.")
    mode: str | None = Field(default=None, description="Mode of `torch.compile`.")
    dynamic: bool | None = Field(default=None, description="Compiles for dynamic shapes.")
    fullgraph: bool = Field(default=False, description="Fails on graph breaks.")
    options: dict[str, Any] | None = Field(default=None, description="Options of the backend.")


class Pt2(_Section):
    """The `pt2` section."""

    compile: Compile = Compile()


def _first_other(words: Iterable[str], pattern: re.Pattern[str]) -> str | None:
    return next((word for word in words if not pattern.fullmatch(word)), None)


def _check_choice(word: str, family: Registry, *others: str) -> str:
    if word not in family:
        raise ValueError(f"is {word!r}; {suggest(word, [*others, *sorted(family)])}")
    return word
