"""`save_mode: openvino`: OpenVINO, primarily for CPUs.

Encoders that support packed rows, and models of embeddings, are converted by this module, all other
models by optimum-intel's OVModel classes. `dtype` sets OpenVINO's inference precision and
`quantization` the precision of weights and activations. With `dtype: auto`, the manifest has the
dtype that was measured when the model was exported: what the processor supports, or float32 where
that changes too many labels. It also loads the files of `optimum-cli export openvino`, for which
`auto` is OpenVINO's default for the processor.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from transformers import GenerationConfig

from ..batching.rows import Outputs
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.checkpoint_files import check_weights
from ..checkpoints.dtypes import cpu_has_amx, cpu_has_bfloat16, name_of, pick_dtype
from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.probe_inputs import GraphInputs, SpeechInputs, TokenInputs, short_positions
from ..compat.openvino import gemma_of_any_transformers
from ..config.model_config import ModelConfig
from ..errors import Unprocessable, WrongCheckpoint, WrongConfig, summarize
from ..export.fidelity import check_fidelity, compare_outputs, compare_vectors
from ..export.fidelity_report import FidelityReport
from ..export.manifest import FILE as MANIFEST
from ..export.manifest import ExportManifest, Signature
from ..export.quantize import AccuracyTarget, Quantized, quantize, split_fused_layers
from ..generation.backends.base import BLOCK, cache_blocks, longest_sequence
from ..generation.backends.openvino_genai import (
    GrammarTrials,
    OpenVinoGenAiModel,
    VectorsOf,
    check_generation_config,
)
from ..generation.generator import end_tokens
from ..generation.grammar import token_bytes
from ..generation.message import MARKS
from ..model import Model, ModelCapabilities
from ..process.resources import available_cores
from ..tasks.base import BaseTask
from . import load_checkpoint
from .base import BaseFormat, FormatCapabilities
from .graph import (
    PaddedGraph,
    PositionalModel,
    build_graph,
    example_inputs,
    find_graph_file,
    translate_export_errors,
    translate_load_errors,
)
from .weights import read_weights

logger = logging.getLogger(__name__)

FILE = "openvino_model.xml"
BASE, DECODER = "AutoModel", "AutoModelForCausalLM"
SPEECH = "AutoModelForSpeechSeq2Seq"
VISION = "AutoModelForImageTextToText"
OFFLINE = {"local_files_only": True, "trust_remote_code": False}
# The operations whose results a gated layer multiplies.
GATES = [{one, other} for one in ("Swish", "Gelu") for other in ("MatMul", "VariadicSplit")]
# In tokens.
LONGEST_WHOLE_PROMPT = 2_048
# Sequences that fill a batch of one, and their tokens, which are whole blocks of the cache.
MAX_FILLERS = 3
FILLER_BLOCKS = 4
FILLER_TOKENS = FILLER_BLOCKS * BLOCK
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}

# Their exports are compared with the checkpoint, since optimum-intel 2.2 has not been tested with
# them and this transformers.
GEMMA = ("gemma", "gemma2", "gemma3_text")


class Format(BaseFormat):
    """OpenVINO, on the CPU."""

    capabilities = FormatCapabilities(
        generates=(DECODER, VISION),
        quantizations=("int8", "int8_weights", "int4_weights"),
        calibrated=("int8",),
    )
    packages: ClassVar[Mapping[str, str]] = {
        "openvino": "pip install openvino",
        "nncf": "pip install nncf",
        "openvino_genai": "pip install openvino-genai",
        "optimum.intel.openvino": "pip install openvino openvino-tokenizers nncf"
        " 'transformers<5.6', and optimum and optimum-intel with --no-deps",
    }
    generation_packages = ("openvino_genai", "optimum.intel.openvino")

    def __init__(self) -> None:
        # Measuring takes minutes, and a model that changes too many labels is exported again.
        self._block_errors: dict[str, float] = {}

    def check(self, config: ModelConfig, task: type[BaseTask[Any, Any]]) -> None:
        super().check(config, task)
        if task.auto_class != VISION:
            return
        if not config.continuousBatching:
            raise WrongConfig(
                config.source,
                f"handler.mode is {config.handler.mode}, handler.save_mode is openvino and"
                " continuousBatching is not true",
                "add continuousBatching: true, or use save_mode: pretrained",
            )
        if config.handler.enable_prefix_caching:
            raise WrongConfig(
                config.source,
                f"handler.enable_prefix_caching is true and handler.mode is {config.handler.mode},"
                " whose images openvino-genai may take for each other",
                "leave enable_prefix_caching out",
            )

    def needs_weights(self, config: ModelConfig) -> bool:
        """Return whether explanations run the checkpoint: openvino-genai only generates."""
        handler = config.handler
        explains = handler.captum_explanation and not handler.quantization
        return super().needs_weights(config) or bool(config.continuousBatching and explains)

    def export(self, spec: ModelSpec, target: Path, inputs: GraphInputs) -> None:
        self.require("openvino")
        _check_positions(spec)
        if spec.config.continuousBatching:
            check_generation_config(spec.checkpoint.generation_config)
        if spec.auto_class == VISION:
            manifest = self._export_vision(spec, target)
        elif isinstance(inputs, SpeechInputs):
            manifest = self._export_speech(spec, target, inputs)
        else:
            graph = self._export_graph(spec, target, inputs)
            manifest = graph or self._export_with_optimum(spec, target, inputs)
        manifest.write(target)
        for path in spec.directory.glob("*config.json"):
            if not (target / path.name).exists():
                shutil.copyfile(path, target / path.name)

    def load(self, spec: ModelSpec) -> Model:
        openvino = self.require("openvino")
        _check_positions(spec)
        if spec.auto_class == SPEECH:
            return self._load_speech(spec)
        if spec.auto_class == VISION:
            return self._load_vision(spec)
        path = find_graph_file(spec.directory, FILE)
        with translate_load_errors(FILE):
            graph = openvino.Core().read_model(path)
            settings = _compile_settings(_dtype(spec), graph)
            signature = _signature(graph, spec)
            if signature.is_packed or spec.reduction or spec.row_kind == "arrays":
                compiled = openvino.compile_model(graph, "CPU", settings)
                return ConvertedModel(compiled, signature, full_precision=self._is_exact(spec))
        exact = _exact(self.served_dtype(spec), graph)
        del graph
        if spec.config.continuousBatching:
            load_graph = partial(self._load_static, spec, exact)
            return self._load_continuous(spec, exact, spec.directory, load_graph)
        return self._load_static(spec, exact)

    def _load_speech(self, spec: ModelSpec) -> Model:
        from . import openvino_whisper as whisper  # noqa: PLC0415

        # Files of other exporters have other inputs.
        find_graph_file(spec.directory, MANIFEST)
        for name in (whisper.ENCODER, whisper.DECODER):
            find_graph_file(spec.directory, name)
        with translate_load_errors(whisper.DECODER):
            graphs = whisper.read_graphs(spec.directory)
            return whisper.WhisperModel(
                graphs,
                spec.checkpoint.config,
                spec.checkpoint.generation_config,
                _exact(self.served_dtype(spec)),
            )

    def _load_vision(self, spec: ModelSpec) -> Model:
        from . import openvino_vision as vision  # noqa: PLC0415

        path = find_graph_file(spec.directory / vision.DECODER, vision.DECODER_FILE)
        dtype = self.served_dtype(spec)
        embedder = vision.Embedder.read(spec.directory / vision.EMBEDDER, dtype)
        with translate_load_errors(vision.DECODER_FILE):
            graph = self.require("openvino").Core().read_model(path)
            settings = _exact(dtype, graph)
        del graph
        if not spec.config.continuousBatching:
            return self._decoder_graph(embedder, path, settings)
        load_graph = partial(self._decoder_graph, embedder, path, settings)
        vectors_of = embedder.of_prompt
        return self._load_continuous(spec, settings, path.parent, load_graph, vectors_of)

    def _decoder_graph(self, embedder: Any, path: Path, settings: Mapping[str, int | str]) -> Any:
        from . import openvino_vision as vision  # noqa: PLC0415

        compiled = self.require("openvino").compile_model(path, "CPU", dict(settings))
        return vision.DecoderGraph(embedder, compiled)

    def _load_static(self, spec: ModelSpec, settings: Mapping[str, int | str]) -> Model:
        with translate_load_errors(FILE):
            intel = self.require("optimum.intel.openvino")
            model = getattr(intel, _class_name(spec)).from_pretrained(
                str(spec.directory), export=False, ov_config=dict(settings), **OFFLINE
            )
        return OpenVinoModel(model, spec.outputs.names, full_precision=self._is_exact(spec))

    def _load_continuous(
        self,
        spec: ModelSpec,
        settings: Mapping[str, int | str],
        folder: Path,
        load_graph: Callable[[], Model],
        vectors_of: VectorsOf | None = None,
    ) -> Model:
        self.require("openvino_genai", "continuousBatching: true")
        handler = spec.config.handler
        least = min_running(self.served_dtype(spec), int(settings["INFERENCE_NUM_THREADS"]))
        blocks = cache_blocks(spec, str(settings["KV_CACHE_PRECISION"]))
        scheduler = {
            "num_kv_blocks": blocks + (least - 1) * FILLER_BLOCKS,
            "enable_prefix_caching": bool(handler.enable_prefix_caching),
            **_reading_of_prompts(spec),
        }
        checkpoint = self._checkpoint_of(spec)
        return OpenVinoGenAiModel(
            folder,
            settings,
            scheduler,
            handler.max_num_seqs,
            handler.max_waiting,
            least,
            # One of them is its prompt.
            min(FILLER_TOKENS, longest_sequence(spec)) - 1,
            spec.checkpoint.generation_config,
            load_graph,
            partial(load_checkpoint, checkpoint) if checkpoint else None,
            _grammar_trials(spec.checkpoint),
            spec.config.hang_seconds,
            vectors_of,
            spec.checkpoint.config.get_text_config().hidden_size if vectors_of else None,
        )

    def _checkpoint_of(self, spec: ModelSpec) -> ModelSpec | None:
        """Return the spec of the checkpoint in the same folder; None if there are no weights."""
        if not (self.needs_weights(spec.config) and spec.has_weights):
            return None
        return spec.of_checkpoint(self.served_dtype(spec))

    def served_dtype(self, spec: ModelSpec) -> str:
        dtype = name_of(pick_dtype(_dtype(spec), spec.device))
        # OpenVINO computes in float32 where the processor lacks bfloat16.
        return dtype if dtype != "bfloat16" or cpu_has_bfloat16() else "float32"

    def _is_exact(self, spec: ModelSpec) -> bool:
        """Return whether an export of this kit computes in float32, with weights in float32."""
        is_own = (spec.directory / MANIFEST).is_file()
        is_quantized = spec.config.handler.quantization is not None
        return is_own and not is_quantized and self.served_dtype(spec) == "float32"

    def _export_graph(
        self, spec: ModelSpec, target: Path, inputs: GraphInputs
    ) -> ExportManifest | None:
        """Export a graph for packed rows, for padded rows whose tokens are reduced, or for arrays.

        Returns:
            The manifest; None for tokens if the model does not support packed rows and has no
            reduction.
        """
        if inputs.kind == "tokens" and not (spec.padding or spec.reduction):
            return None
        openvino = self.require("openvino")
        module = read_weights(spec.in_float32()).eval().requires_grad_(requires_grad=False)
        graph = build_graph(module, spec, inputs)
        if isinstance(graph, PaddedGraph) and not spec.reduction:
            return None
        batches = inputs.batches(module)
        with translate_export_errors(module):
            converted = openvino.convert_model(graph, example_input=example_inputs(graph, batches))
            _set_names(converted.inputs, graph.signature.inputs)
            if inputs.kind == "arrays":
                _fix_shapes(converted, inputs, batches[0])
            _set_names(converted.outputs, graph.signature.outputs)
            compiled = openvino.compile_model(converted, "CPU", _compile_settings("float32"))
        model = ConvertedModel(compiled, graph.signature)
        check_fidelity(module, model, batches, FILE)
        quantized = self._quantize(spec, converted, graph.signature)
        openvino.save_model(quantized.graph, target / FILE, compress_to_fp16=False)
        return ExportManifest(graph.signature, quantized.dtype)

    def _export_speech(self, spec: ModelSpec, target: Path, inputs: SpeechInputs) -> ExportManifest:
        """Export the encoder and the decoder of Whisper."""
        from . import openvino_whisper as whisper  # noqa: PLC0415

        if spec.config.handler.quantization in self.capabilities.calibrated:
            raise WrongCheckpoint(
                "config.json",
                "is that of Whisper, which cannot be calibrated for quantization: int8",
                "use int8_weights or int4_weights",
            )
        openvino = self.require("openvino")
        module = read_weights(spec.in_float32()).eval().requires_grad_(requires_grad=False)
        generation_config, batches = spec.checkpoint.generation_config, inputs.batches(module)
        with translate_export_errors(module):
            graphs = whisper.convert(module, generation_config, batches[0])
        model = whisper.WhisperModel(graphs, module.config, generation_config, _exact("float32"))
        check_fidelity(module, model, batches, whisper.DECODER)
        signature = Signature(inputs.names, spec.outputs.names)
        uncalibrated = replace(spec, calibration=())
        for graph, name in zip(graphs, (whisper.ENCODER, whisper.DECODER), strict=True):
            quantized = self._quantize(uncalibrated, graph, signature)
            openvino.save_model(quantized.graph, target / name, compress_to_fp16=False)
        return ExportManifest(signature, quantized.dtype)

    def _export_vision(self, spec: ModelSpec, target: Path) -> ExportManifest:
        """Export a vision language model, whose images the checkpoint's own code reads."""
        from . import openvino_vision as vision  # noqa: PLC0415

        module = read_weights(spec.in_float32()).eval().requires_grad_(requires_grad=False)
        batches = vision.examples(spec)
        vision.check_decoder(module, batches)
        with torch.inference_mode():
            expected = [module(**batch).logits for batch in batches]
        vision.export(spec, module, target, self._convert_llava)
        embedder = vision.Embedder.read(target / vision.EMBEDDER, "float32")
        openvino, path = self.require("openvino"), target / vision.DECODER / vision.DECODER_FILE
        model = self._decoder_graph(embedder, path, _exact("float32"))
        vision.check_logits(model, batches, expected)
        signature = Signature(vision.INPUTS, spec.outputs.names)
        quantized = self._quantize(spec, openvino.Core().read_model(path), signature)
        if spec.config.handler.quantization:
            openvino.save_model(quantized.graph, target / FILE, compress_to_fp16=False)
            for name in (FILE, Path(FILE).with_suffix(".bin").name):
                (target / name).replace(path.with_suffix(Path(name).suffix))
        return ExportManifest(signature, quantized.dtype)

    def _export_with_optimum(
        self, spec: ModelSpec, target: Path, inputs: GraphInputs
    ) -> ExportManifest:
        """Export a model with optimum-intel."""
        model = self._convert_checkpoint(spec, inputs)
        signature = Signature(_names(model.model.inputs), spec.outputs.names)
        quantized = self._quantize(spec, model.model, signature)
        model.model = quantized.graph
        with TemporaryDirectory(dir=target) as temporary:
            model.save_pretrained(temporary)
            for path in Path(temporary).glob("openvino_*"):
                path.replace(target / path.name)
        return ExportManifest(signature, quantized.dtype)

    def _convert_llava(self, folder: Path, target: Path) -> None:
        """Write the files of a LLaVA in a folder as optimum-intel does."""
        self._convert("OVModelForVisualCausalLM", folder).save_pretrained(target)

    def _convert_checkpoint(self, spec: ModelSpec, inputs: GraphInputs) -> Any:
        """Return a model of optimum-intel that is converted from the checkpoint.

        Raises:
            WrongCheckpoint: it cannot be converted, or has other outputs than the checkpoint.
        """
        config = spec.checkpoint.config
        check_weights(spec.directory, config, allow_pickle=spec.config.handler.allow_pickle)
        is_gemma = config.model_type in GEMMA
        with gemma_of_any_transformers() if is_gemma else nullcontext():
            model = self._convert(_class_name(spec), spec.directory)
        # Decoders can be too large to be in memory a second time.
        if is_gemma or spec.auto_class != DECODER:
            module = read_weights(spec.in_float32()).eval()
            names = ("input_ids", "attention_mask")
            read = TokenInputs(names, spec.checkpoint.row_maker) if is_gemma else inputs
            converted = OpenVinoModel(model, spec.outputs.names)
            check_fidelity(module, converted, read.batches(module), FILE)
        return model

    def _convert(self, class_name: str, folder: Path) -> Any:
        """Return a model that a class of optimum-intel converts from a folder.

        Raises:
            WrongCheckpoint: it cannot be converted.
        """
        intel = self.require("optimum.intel.openvino")
        try:
            return getattr(intel, class_name).from_pretrained(
                str(folder),
                export=True,
                compile=False,
                load_in_8bit=False,
                ov_config=_compile_settings("float32"),
                **OFFLINE,
            )
        except Exception as error:  # noqa: BLE001 - each converter has its own error types
            raise WrongCheckpoint(
                FILE, f"cannot be exported ({summarize(error)})", "use save_mode: pretrained"
            ) from None

    def _quantize(self, spec: ModelSpec, graph: Any, signature: Signature) -> Quantized:
        """Return the graph with the quantization of the YAML."""
        handler = spec.config.handler
        dtypes = _dtypes(spec)
        if handler.quantization is None:
            return Quantized(graph, dtypes[0])
        nncf = self.require("nncf", f"handler.quantization: {handler.quantization}")
        if handler.quantization == "int8":
            split_fused_layers(graph)
        return quantize(
            graph,
            handler.quantization,
            [_named_arrays(signature, batch) for batch in spec.calibration],
            AccuracyTarget(
                handler.min_agreement,
                partial(_compare, spec),
                spec.outputs.per_token,
                {dtype: _compile_settings(dtype, graph) for dtype in dtypes},
            ),
            nncf=nncf,
            compile_model=self.require("openvino").compile_model,
            errors=self._block_errors,
        )


class ConvertedModel(PositionalModel):
    """A compiled graph that this module has converted, for packed rows or for padded ones."""

    def __init__(
        self, compiled: Any, signature: Signature, *, full_precision: bool = False
    ) -> None:
        self._compiled = compiled
        super().__init__(signature, compiles_shapes=True, full_precision=full_precision)

    def _run(self, inputs: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
        names = self._signature.inputs
        arrays = dict(zip(names, (each.numpy() for each in inputs), strict=True))
        outputs = self._compiled(arrays, share_inputs=True)
        return {name: torch.from_numpy(outputs[name]) for name in self._signature.outputs}


class OpenVinoModel(Model):
    """A model of optimum-intel."""

    def __init__(
        self, model: Any, outputs: tuple[str, ...], *, full_precision: bool = False
    ) -> None:
        self._model, self._outputs = model, outputs
        self.capabilities = ModelCapabilities(full_precision=full_precision)
        self._inputs = set(_names(model.model.inputs))

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        inputs = {name: tensor for name, tensor in batch.items() if name in self._inputs}
        outputs = self._model(**inputs)
        return {name: outputs[name] for name in self._outputs}

    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        ids = self._model.generate(**batch, generation_config=config, **extra)
        return torch.as_tensor(ids)


def _class_name(spec: ModelSpec) -> str:
    """Return the name of optimum-intel's class for a checkpoint."""
    name = "ModelForFeatureExtraction" if spec.auto_class == BASE else spec.auto_class
    return f"OV{name.removeprefix('Auto')}"


def _named_arrays(signature: Signature, batch: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    names = [name for name in signature.inputs if signature.is_packed or name in batch]
    tensors = replace(signature, inputs=tuple(names)).by_position(batch)
    return dict(zip(names, (tensor.numpy() for tensor in tensors), strict=True))


def _check_positions(spec: ModelSpec) -> None:
    """Check that no text reaches the positions for which LongRoPE has other factors.

    optimum-intel fails there with transformers 5, and openvino-genai would give all texts that run
    beside a long one its factors.

    Raises:
        WrongCheckpoint: texts may reach them.
    """
    positions, handler = short_positions(spec.checkpoint.config), spec.config.handler
    if positions is None:
        return
    limits = (spec.checkpoint.limit, handler.max_total_tokens)
    if min(filter(None, limits), default=math.inf) > positions:
        raise WrongCheckpoint(
            "config.json",
            f"has LongRoPE, which save_mode: openvino computes for texts of at most {positions:,}"
            " tokens",
            f"set handler.max_total_tokens: {positions}, or use save_mode: pretrained",
        )


def _reading_of_prompts(spec: ModelSpec) -> dict[str, Any]:
    """Return values of openvino-genai's `SchedulerConfig`.

    A prompt that is read in one step has its first token sooner. The running texts wait
    meanwhile, so that long prompts are read in parts, in the steps of the running texts.
    """
    handler, longest = spec.config.handler, longest_sequence(spec)
    in_parts, tokens = handler.enable_chunked_prefill, handler.max_num_batched_tokens
    if in_parts or (in_parts is None and (tokens or longest > LONGEST_WHOLE_PROMPT)):
        own = {"max_num_batched_tokens": max(tokens, handler.max_num_seqs)} if tokens else {}
        return {"dynamic_split_fuse": True, **own}
    whole = max(longest, LONGEST_WHOLE_PROMPT)
    # As many texts as there may be: beams are counted, and the process holds to the limit of texts.
    # Where prompts have separate steps, openvino-genai 2026.4 computes wrong tokens for a
    # prompt of which a running text has all blocks, and leaves them in the cache for later texts.
    shared = bool(handler.enable_prefix_caching)
    return {"dynamic_split_fuse": shared, "max_num_batched_tokens": whole, "max_num_seqs": whole}


def min_running(dtype: str, threads: int) -> int:
    """Return how many texts run at least, where one runs, so that it is the same as beside others.

    With many threads, the texts beside it would make it slower. In float32, the digits that depend
    on the number of texts are too small to matter.
    """
    return threads if dtype != "float32" and threads <= MAX_FILLERS + 1 else 1


def _dtypes(spec: ModelSpec) -> list[str]:
    """Return the dtypes that an export may compute in, the preferred one first."""
    dtype = spec.config.handler.dtype
    if dtype != "auto":
        return [dtype]
    return list(dict.fromkeys([name_of(pick_dtype("auto", spec.device)), "float32"]))


def _dtype(spec: ModelSpec) -> str:
    """Return the dtype that an exported model is told to compute in."""
    dtype = spec.config.handler.dtype
    if dtype != "auto":
        return dtype
    return ExportManifest.read(spec.directory, spec.outputs.required).dtype or dtype


def _compare(
    spec: ModelSpec, expected: Iterable[Outputs], found: Iterable[Outputs]
) -> FidelityReport:
    """Return the agreement of the outputs of two graphs for the same batches."""
    if spec.outputs.are_vectors:
        return compare_vectors(expected, found)
    return compare_outputs(
        map(spec.decision_scores, expected),
        map(spec.decision_scores, found),
        independent=spec.checkpoint.independent_labels,
        numbers=spec.outputs.numbers,
    )


def _compile_settings(dtype: str, graph: Any = None) -> dict[str, int | str]:
    """Return OpenVINO's settings for a dtype and the graph that is compiled, if it is known.

    OpenVINO pins threads by default, in each process from the first core on: workers with a
    part of the cores would all compute on the same ones.
    """
    threads = torch.get_num_threads()
    settings: dict[str, int | str] = {"INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False}
    if precision := _precision(dtype, graph):
        settings["INFERENCE_PRECISION_HINT"] = precision
    return settings


def _exact(dtype: str, graph: Any = None) -> dict[str, int | str]:
    """Return settings for texts: OpenVINO keeps keys and values in 8 bits, which changes them."""
    settings = _compile_settings(dtype, graph)
    return {**settings, "KV_CACHE_PRECISION": settings["INFERENCE_PRECISION_HINT"]}


def _precision(dtype: str, graph: Any) -> str | None:
    """Return OpenVINO's word for a dtype, or for float32 where it would end the process.

    On processors with AMX, OpenVINO 2026.4 computes gated layers with one operation in 16
    bits, which divides by zero if it has a single thread.
    """
    threads = min(torch.get_num_threads(), available_cores())
    is_fused = dtype != "float32" and threads == 1 and cpu_has_amx()
    if graph is None or not is_fused or not _has_gated_layers(graph):
        return PRECISIONS.get(dtype)
    logger.warning(
        "OpenVINO computes this model in float32, as it has one thread on this processor"
    )
    return PRECISIONS["float32"]


def _has_gated_layers(graph: Any) -> bool:
    """Return whether the activation of one layer is multiplied by another, as in Llama.

    Some models compute both layers as one, and split it.
    """
    return any(
        {value.get_node().get_type_name() for value in node.input_values()} in GATES
        for node in graph.get_ops()
        if node.get_type_name() == "Multiply"
    )


def _grammar_trials(checkpoint: Checkpoint) -> GrammarTrials | None:
    """Return the trials of grammars for a model; None if it cannot have any."""
    ends = end_tokens(checkpoint.generation_config)
    try:
        tokens = token_bytes(checkpoint.tokenizer, checkpoint.vocab_size, ends, MARKS)
    except Unprocessable:
        return None
    return GrammarTrials(tokens, ends)


def _signature(graph: Any, spec: ModelSpec) -> Signature:
    """Return the names of the inputs of a graph, and of those outputs that the task reads."""
    names = {name for each in graph.outputs for name in each.names}
    outputs = (
        name for name in spec.outputs.names if name in names or name in spec.outputs.required
    )
    return Signature(_names(graph.inputs), tuple(outputs))


def _fix_shapes(graph: Any, inputs: GraphInputs, batch: Mapping[str, torch.Tensor]) -> None:
    """Fix the axes that have one size, so that OpenVINO plans for it."""
    for name in inputs.names:
        tensor = batch[name]
        free = inputs.free_axes(name, tensor)
        shape = [-1 if axis in free else size for axis, size in enumerate(tensor.shape)]
        graph.reshape({name: shape})


def _names(ports: Sequence[Any]) -> tuple[str, ...]:
    return tuple(each.get_any_name() for each in ports)


def _set_names(ports: Sequence[Any], names: Sequence[str]) -> None:
    for port, name in zip(ports, names, strict=True):
        port.get_tensor().set_names({name})
