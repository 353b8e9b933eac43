"""`save_mode: pretrained`: a checkpoint as written by `save_pretrained`, run by torch."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from inspect import signature
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import GenerationConfig, PreTrainedModel

from ..batching.padding import Padding, to_numpy
from ..batching.rows import Row, TrialRows
from ..batching.sequence_packing import PackedBatch, pack
from ..checkpoints.architecture import is_encoder
from ..checkpoints.checkpoint_files import check_components
from ..checkpoints.diffusion import DiffusionCheckpoint, import_diffusers
from ..checkpoints.dtypes import pick_dtype, quantization_method
from ..checkpoints.lora_files import AdapterFolders
from ..checkpoints.model_spec import ModelSpec, specify_assistant
from ..checkpoints.placement import log_placement
from ..checkpoints.pooling import ModelWithPooling, TextSlots
from ..checkpoints.probe_inputs import full_attention_tokens, short_positions
from ..checkpoints.trial_results import TrialResults
from ..compat.transformers import (
    can_be_repeated,
    choose_attention_by_length,
    continue_cache,
    has_recurrent_state,
    same_attention,
)
from ..config.handler_section import Compile
from ..config.messages import enumerate_names, quote
from ..config.model_config import ModelConfig
from ..errors import RequestTooLarge, Unprocessable, WrongCheckpoint, WrongConfig, summarize
from ..generation.backends.transformers_paged import as_paged
from ..generation.backends.vllm import load_vllm
from ..model import Assistant, GraphLimits, Model, ModelCapabilities
from ..process.ranks import seeded, world_size
from ..tasks.text_to_image import ImageCall, ImageModel, PipelineImage
from ..tasks.text_to_speech import SpeechCall, SpeechModel, VitsCheckpoint
from .base import BaseFormat, FormatCapabilities
from .cuda_graphs import GraphedForward, shapes
from .lora_adapters import LoraAdapters, load_adapters
from .packable import Packable, as_packable
from .weights import read_weights, read_without_head

logger = logging.getLogger(__name__)

# Where transformers' continuous batching was tested.
PAGED_DEVICES = ("cpu", "cuda")
# Model types whose layers have gradients in training alone: Reformer's layers are reversible.
WITHOUT_GRADIENTS = ("reformer",)
# The argument of decoders with the places of the tokens whose scores are computed.
LOGITS_TO_KEEP = "logits_to_keep"
# Attributes of VITS, whose forward has no arguments for most of them.
VITS_SETTINGS = ("speaking_rate", "noise_scale", "noise_scale_duration")


class Format(BaseFormat):
    """The checkpoint itself, run by torch."""

    capabilities = FormatCapabilities(
        generates=("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForSeq2SeqLM"),
        engines=("vllm",),
        supports_compile=True,
        supports_batch_size=True,  # TorchServe's example sets the key in every YAML.
        supports_assistant=True,
        supports_adapters=True,
    )

    def needs_weights(self, config: ModelConfig) -> bool:
        return True

    def load(self, spec: ModelSpec) -> Model:
        """Load single-file or sharded safetensors weights into the auto class of the task.

        Raises:
            WrongCheckpoint: the weights cannot be read or lack the head of the task, or an adapter
                does not fit them.
            WrongConfig: the weights cannot be placed as the YAML specifies.
        """
        if isinstance(spec.checkpoint, DiffusionCheckpoint):
            return load_pipeline(spec, spec.checkpoint)
        if isinstance(spec.checkpoint, VitsCheckpoint):
            return VitsModel(_frozen(read_weights(spec)))
        if spec.config.handler.engine:
            return load_vllm(spec, self.served_dtype(spec), partial(self.load, _on_cpu(spec)))
        folders = AdapterFolders(spec.directory, spec.config.handler)
        module, missing = read_without_head(spec) if folders else (read_weights(spec), ())
        log_placement(spec.config, module)
        adapters = load_adapters(module, folders, missing)
        reads_tokens = spec.row_kind == "tokens"
        model = PretrainedModel(
            _frozen(module), spec.outputs.names, adapters, reads_tokens=reads_tokens
        )
        if spec.config.handler.assistant_model is not None:
            model.assistant = _read_assistant(spec, module)
        return model

    def run_continuously(self, spec: ModelSpec, model: Model) -> Model:
        paged = None
        if isinstance(model, PretrainedModel) and model.capabilities.supports_paging:
            paged = as_paged(model, model.module, spec)
        return paged or super().run_continuously(spec, model)


class PretrainedModel(Model):
    """A transformers module.

    Args:
        adapters: its LoRA adapters, if it has any.
        reads_tokens: whether its rows are tokens, whose vectors explanations need gradients of.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        outputs: tuple[str, ...],
        adapters: LoraAdapters | None = None,
        *,
        reads_tokens: bool = True,
    ) -> None:
        self.module = module
        self._short_rows = full_attention_tokens(module.config)
        if self._short_rows is not None:
            choose_attention_by_length(module, self._short_rows)
        self._reads_tokens = reads_tokens
        # Explanations register hooks on layers, which a compiled graph ignores.
        self._eager = module.forward
        self._outputs = outputs
        self._packable: Packable | None = None
        self._graphs: GraphedForward | None = None
        self._adapters = adapters
        # Runs a batch with the adapters of its rows; the block gets what the module takes.
        self._adapted = adapters.of_batch if adapters else nullcontext
        lookup = module.can_generate() and _can_take_back(module)
        self.capabilities = ModelCapabilities(
            pools_chunks=isinstance(module, ModelWithPooling),
            supports_prompt_lookup=lookup,
            supports_paging=lookup and _can_be_paged(module),
            has_adapters=adapters is not None,
            mixes_adapters=adapters is None or adapters.mixes,
            on_accelerator=module.device.type != "cpu",
            full_precision=module.dtype == torch.float32,
        )

    @torch.inference_mode()
    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        with self._adapted(batch) as inputs:
            return self._select_outputs(self.module(**self._to_device(inputs)))

    @torch.inference_mode()
    def embed_images(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return torch.as_tensor(self.module.get_image_embeddings(**self._to_device(batch)))

    @property
    def embeddings(self) -> Sequence[torch.nn.Module]:
        module = self.module.module if isinstance(self.module, ModelWithPooling) else self.module
        # An encoder may have a separate module, which only shares its weights with the decoder's.
        has_encoder = module.config.is_encoder_decoder or is_encoder(module)
        reader = module.get_encoder() if has_encoder else module
        try:
            first = reader.get_input_embeddings()
        except NotImplementedError:  # CANINE makes vectors of hashes.
            return ()
        weight = getattr(first, "weight", None)
        # Perceiver has a parameter, which is no layer.
        is_layer = isinstance(first, torch.nn.Module) and weight is not None
        if not is_layer or module.config.model_type in WITHOUT_GRADIENTS:
            return ()
        layers = (each for each in module.modules() if isinstance(each, torch.nn.Embedding))
        return first, *(each for each in layers if each is not first and each.weight is weight)

    @property
    def has_gradients(self) -> bool:
        return not self._reads_tokens or bool(self.embeddings)

    def forward_with_gradients(
        self, batch: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        with self._adapted(batch) as inputs:
            return self._select_outputs(self._eager(**self._to_device(inputs)))

    def compile(self, options: Compile | None) -> bool:
        self.module.forward = compile_forward(self._eager, options) if options else self._eager
        return options is not None

    def pack(self, trial: TrialRows, padding: Padding, per_token: tuple[str, ...]) -> bool:
        if self._short_rows is not None:
            return False  # Texts that are packed would be one long text with sparse attention.
        self._pack_with(as_packable(self.module, trial, padding, self._outputs, per_token))
        return self._packable is not None

    def _pack_with(self, packable: Packable | None) -> None:
        self._packable = packable
        self.capabilities = replace(
            self.capabilities,
            supports_packing=packable is not None,
            packs_one_row=packable is not None and packable.one_row,
        )

    def record_graphs(self, texts: Sequence[Row], padding: Padding, limits: GraphLimits) -> None:
        packable = self._packable
        # Adapters are chosen by other modules for each batch, and ranks wait for each other.
        if not (packable and packable.one_row) or self._adapters or world_size() > 1:
            return

        def compute(inputs: Mapping[str, torch.Tensor], longest: int) -> Mapping[str, torch.Tensor]:
            return self._select_outputs(packable.compute(inputs, longest))

        graphs = GraphedForward(compute, self.module.device, limits.per_token)
        example = pack(texts, [range(len(texts))], padding)
        try:
            graphs.record(example, texts, shapes(limits.budget, limits.longest))
        except Exception as error:  # noqa: BLE001 - some modules wait for the device in a forward
            reason = summarize(error)
            logger.warning("CUDA graphs are not possible (%s); forwards run without them", reason)
            return
        self._graphs = graphs

    @property
    def trial_results(self) -> TrialResults | None:
        # Quantized layers have kernels of other packages.
        if quantization_method(self.module.config):
            return None
        return TrialResults(
            packing=self._packable.numbers if self._packable else None,
            padded_limit=self.padded_limit if math.isfinite(self.padded_limit) else None,
            runs_alone=self.runs_alone,
        )

    def take_trial_results(self, results: TrialResults) -> None:
        packing = results.packing
        self._pack_with(Packable.of_numbers(self.module, *packing) if packing else None)
        limit = results.padded_limit
        self.padded_limit = math.inf if limit is None else limit
        self.runs_alone = results.runs_alone

    def with_adapters(self, adapters: Sequence[str | None]) -> AbstractContextManager[None]:
        return self._adapters.active(adapters) if self._adapters else nullcontext()

    def adapter_number(self, name: str | None) -> int:
        if self._adapters is None:
            return 0
        number = self._adapters.number(name)
        if self.capabilities.mixes_adapters and not self._adapters.mixes:
            self.capabilities = replace(self.capabilities, mixes_adapters=False)
        return number

    def release_adapters(self) -> int:
        return self._adapters.release() if self._adapters else 0

    @torch.inference_mode()
    def forward_packed(self, packed: PackedBatch) -> Mapping[str, torch.Tensor]:
        if self._packable is None:
            raise NotImplementedError
        with self._adapted(packed.inputs) as inputs:
            if self._graphs:
                found = self._graphs.run(*self._packable.host_inputs(inputs))
                if found is not None:
                    return found
            return self._select_outputs(self._packable.forward(inputs))

    @torch.inference_mode()
    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        return torch.as_tensor(self.generate_outputs(batch, config, **extra))

    @torch.inference_mode()
    def generate_outputs(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> Any:
        with same_attention(self.module.config):
            return self.module.generate(**self._to_device(batch), generation_config=config, **extra)

    @torch.inference_mode()
    def read_prefix(self, ids: Sequence[int]) -> Any:
        if has_recurrent_state(self.module):
            return None
        inputs = {"input_ids": torch.tensor([list(ids)], device=self.module.device)}
        run = self.module.module if isinstance(self.module, ModelWithPooling) else self._eager
        cache = run(**inputs, **self._kept([0]), use_cache=True).get("past_key_values")
        return cache if can_be_repeated(cache) else None

    @torch.inference_mode()
    def forward_after(
        self, prefix: Any, batch: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        inputs: dict[str, Any] = self._to_device(batch)
        slots = TextSlots.of_mask(inputs["attention_mask"])
        inputs |= continue_cache(prefix, inputs["attention_mask"])
        return self._select_outputs(self._eager(**inputs, slots=slots, use_cache=True))

    @torch.inference_mode()
    def last_scores(
        self, batch: Mapping[str, torch.Tensor], lengths: Sequence[int], prefix: Any = None
    ) -> npt.NDArray[np.float32]:
        inputs: dict[str, Any] = self._to_device(batch)
        if prefix is not None:
            inputs |= continue_cache(prefix, inputs["attention_mask"])
        ends = sorted({length - 1 for length in lengths})
        kept = self._kept(ends)
        logits = self._eager(**inputs, **kept, use_cache=prefix is not None)["logits"]
        columns = [ends.index(length - 1) if kept else length - 1 for length in lengths]
        return to_numpy(logits[list(range(len(lengths))), columns])

    def _kept(self, columns: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return the argument that computes the scores of some tokens alone, if there is one."""
        if LOGITS_TO_KEEP not in signature(self.module.forward).parameters:
            return {}
        return {LOGITS_TO_KEEP: torch.tensor(list(columns), device=self.module.device)}

    def _select_outputs(self, result: Any) -> dict[str, torch.Tensor]:
        # Some models have a head, and its output, only where their config says so.
        outputs = {}
        for name in self._outputs:
            if result.get(name) is not None:
                outputs[name] = result[name]
        return outputs

    def _to_device(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return a batch on the device of the model; pixels in its data type."""
        device, dtype = self.module.device, self.module.dtype
        moved = {}
        for name, tensor in batch.items():
            moved[name] = tensor.to(device, dtype if tensor.is_floating_point() else None)
        return moved


def _on_cpu(spec: ModelSpec) -> ModelSpec:
    """Return the spec of the model beside an engine, which has the memory of the accelerator."""
    return replace(spec.with_settings(engine=None), device=torch.device("cpu"))


def _frozen(module: PreTrainedModel) -> PreTrainedModel:
    """Prepare a model for running without gradients of its weights."""
    module.requires_grad_(False)
    module.eval()
    for layer in _linear_layers(module):
        _copy_strided_inputs(layer)
    return module


def _can_be_paged(module: PreTrainedModel) -> bool:
    """Return whether transformers' continuous batching may run a model that generates."""
    config = module.config
    is_spread = getattr(module, "hf_device_map", None)
    others = is_spread or quantization_method(config) or config.is_encoder_decoder
    return module.device.type in PAGED_DEVICES and not (others or hasattr(config, "vision_config"))


def _read_assistant(spec: ModelSpec, module: PreTrainedModel) -> Assistant:
    """Load the draft model of a model.

    Raises:
        WrongCheckpoint: it cannot be loaded, does not fit, or either model cannot take back tokens.
    """
    draft = specify_assistant(spec)
    assistant = _frozen(read_weights(draft))
    forgetful = next((each for each in (module, assistant) if not _can_take_back(each)), None)
    if forgetful is not None:
        raise WrongCheckpoint(
            "handler.assistant_model",
            f"needs models that take tokens back, and {type(forgetful).__name__} has a sliding"
            " window, LongRoPE or a state",
            "leave it out",
        )
    return Assistant(assistant, draft.checkpoint.limit)


def _can_take_back(module: PreTrainedModel) -> bool:
    """Return whether tokens that a model does not confirm can be removed without a trace.

    A cache of a window has lost others, and with LongRoPE they change the factors of the text.
    """
    config = module.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    layers = getattr(config, "layer_types", None) or ["sliding" if window else "full_attention"]
    keeps_all = set(layers) == {"full_attention"} and not has_recurrent_state(module)
    return keeps_all and short_positions(config) is None


def _linear_layers(module: PreTrainedModel) -> list[torch.nn.Module]:
    """Return the linear layers whose input may be strided.

    They are the head of a language model, and all of a model that reads images, whose patches are
    often transposed. A layer of those takes far longer than the check.
    """
    if "pixel_values" in signature(module.forward).parameters:
        return [each for each in module.modules() if isinstance(each, torch.nn.Linear)]
    outputs = module.get_output_embeddings()
    return [outputs] if isinstance(outputs, torch.nn.Linear) else []


def _copy_strided_inputs(layer: torch.nn.Module) -> None:
    """Have a linear layer copy hidden states that are not contiguous.

    The last hidden state of each prompt is a slice of a tensor with the states of all tokens. torch
    multiplies such a tensor with a weight without gradients as a batch of matrices, for which it
    copies the weight once a row: minutes instead of milliseconds for a large vocabulary.
    """
    layer.register_forward_pre_hook(lambda _layer, inputs: (inputs[0].contiguous(), *inputs[1:]))


def compile_forward(forward: Callable[..., Any], options: Compile) -> Callable[..., Any]:
    """Return a function that is compiled at its first call.

    Shapes are dynamic by default, so that new lengths do not cause a recompilation.
    """
    return torch.compile(
        forward,
        backend=options.backend,
        mode=options.mode,
        dynamic=True if options.dynamic is None else options.dynamic,
        fullgraph=options.fullgraph,
        options=options.options,
    )


class VitsModel(SpeechModel):
    """A module of VITS."""

    def __init__(self, module: PreTrainedModel) -> None:
        self.module: Any = module
        self._frames_per_second = module.config.sampling_rate / prod(module.config.upsample_rates)
        self.capabilities = ModelCapabilities(full_precision=module.dtype == torch.float32)

    @torch.inference_mode()
    def speak(self, call: SpeechCall) -> npt.NDArray[np.float32]:
        ids = torch.tensor([call.input_ids], device=self.module.device)
        with self._set(call), self._limited(call.max_seconds), seeded(call.seed):
            spoken = self.module(
                input_ids=ids, attention_mask=torch.ones_like(ids), speaker_id=call.speaker_id
            )
        waveform: npt.NDArray[np.float32] = spoken.waveform[0].float().cpu().numpy()
        return waveform

    @contextmanager
    def _set(self, call: SpeechCall) -> Iterator[None]:
        """Set the attributes of the module that a call names within the block."""
        own = {name: getattr(self.module, name) for name in VITS_SETTINGS}
        try:
            for name, value in own.items():
                given = getattr(call, name)
                setattr(self.module, name, value if given is None else given)
            yield
        finally:
            for name, value in own.items():
                setattr(self.module, name, value)

    @contextmanager
    def _limited(self, max_seconds: float) -> Iterator[None]:
        """Check durations within the block, before anything is computed for their frames."""

        def check(_predictor: Any, _inputs: Any, log_durations: torch.Tensor) -> None:
            durations = torch.ceil(torch.exp(log_durations.float()) / self.module.speaking_rate)
            seconds = float(durations.sum()) / self._frames_per_second
            # NaN is not less than a number either.
            if not seconds <= max_seconds:
                raise RequestTooLarge(
                    f"The speech would have {seconds:,.1f} seconds, and this model speaks"
                    f" {max_seconds:,g}; send the text in parts, or a higher speaking_rate."
                )

        hook = self.module.duration_predictor.register_forward_hook(check)
        try:
            yield
        finally:
            hook.remove()


# Those of diffusers that need no further packages, take any number of steps, and are in use.
SCHEDULERS = (
    "DDIMScheduler",
    "DPMSolverMultistepScheduler",
    "EulerAncestralDiscreteScheduler",
    "EulerDiscreteScheduler",
    "HeunDiscreteScheduler",
    "PNDMScheduler",
    "UniPCMultistepScheduler",
)


def load_pipeline(spec: ModelSpec, checkpoint: DiffusionCheckpoint) -> ImageModel:
    """Load the components of a checkpoint, whose weights are safetensors.

    Raises:
        WrongCheckpoint: a component is missing, cannot be loaded or lacks weights.
        WrongConfig: the YAML sets a key that pipelines do not have.
    """
    _check_keys(spec.config)
    check_components(spec.directory)
    diffusers = import_diffusers()
    try:
        pipeline = diffusers.AutoPipelineForText2Image.from_pretrained(
            spec.directory,
            dtype=pick_dtype(spec.config.handler.dtype, spec.device),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
        pipeline.to(spec.device)
    except Exception as error:  # noqa: BLE001 - each component has its own error types
        raise WrongCheckpoint(
            "weights",
            f"of {checkpoint.index.pipeline} cannot be loaded ({summarize(error, 300)})",
            "pack safetensors that fit the config.json of each component",
        ) from None
    return DiffusionModel(pipeline)


def _check_keys(config: ModelConfig) -> None:
    """Check that no key is set that concerns models of transformers alone."""
    handler = config.handler
    keys = {
        "handler.device_map": handler.device_map,
        "handler.model_parallel": handler.model_parallel,
        "handler.allow_pickle": handler.allow_pickle,
        "handler.allow_random_head": handler.allow_random_head,
        "torchrun": config.torchrun,
        "pt2.compile": config.pt2.compile.enable,
    }
    if name := next((name for name, value in keys.items() if value), None):
        raise WrongConfig(name, f"is set, and mode: {handler.mode} has it not", "leave it out")


class DiffusionModel(ImageModel):
    """A pipeline of diffusers.

    Images are made one after the other: in a batch of them, rounding would depend on the others.
    """

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        pipeline.set_progress_bar_config(disable=True)
        for module in pipeline.components.values():
            if isinstance(module, torch.nn.Module):
                module.requires_grad_(False).eval()
        own = pipeline.scheduler
        compatible = {each.__name__: each for each in own.compatibles} if own else {}
        self._schedulers = {name: compatible[name] for name in SCHEDULERS if name in compatible}
        self._own_scheduler = type(own)
        self._scheduler_config = own.config

    @torch.inference_mode()
    def draw(self, call: ImageCall, on_step: Callable[[int, int], None]) -> PipelineImage:
        # A scheduler keeps a state, which an error in between would leave to the next call.
        self._pipeline.scheduler = self._scheduler(call.scheduler)

        def ended(pipeline: Any, step: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
            on_step(step + 1, pipeline.num_timesteps)
            return {}

        try:
            made = self._pipeline(
                call.prompt,
                generator=torch.Generator("cpu").manual_seed(call.seed),
                output_type="np",
                callback_on_step_end=ended,
                **call.parameters,
            )
        except ValueError as error:  # how pipelines refuse what they cannot do
            raise Unprocessable(
                f"The pipeline of this model does not take these parameters ({summarize(error)})."
            ) from None
        flagged = getattr(made, "nsfw_content_detected", None)
        return PipelineImage(made.images[0], bool(flagged[0]) if flagged else None)

    def _scheduler(self, name: str | None) -> Any:
        """Return a new scheduler with the settings of the checkpoint's.

        Raises:
            Unprocessable: its settings do not fit the pipeline.
        """
        if name is None or name == self._own_scheduler.__name__:
            return self._own_scheduler.from_config(self._scheduler_config)
        if name not in self._schedulers:
            raise Unprocessable(
                f"This model has no scheduler {quote(name)}; there are"
                f" {enumerate_names(self._schedulers)}."
            )
        return self._schedulers[name].from_config(self._scheduler_config)
