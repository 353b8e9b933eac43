"""Whisper in OpenVINO: an encoder and a decoder with a cache, which transformers' `generate` runs.

The encoder computes the keys and values of the cross-attention once for each row. The beams of a
row share them: they are one longer query. The decoder keeps those of its tokens in a state of
OpenVINO.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import torch
from openvino.passes import MakeStateful, Manager
from openvino.preprocess import PrePostProcessor
from torch.nn import functional
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from ..compat.transformers_whisper import WhisperWithOtherCache
from ..model import Model

ENCODER = "openvino_encoder_model.xml"
DECODER = "openvino_decoder_model.xml"
INPUTS = ("input_ids", "attention_mask", "position_ids", "beam_idx")
LOGITS, WEIGHTS = "logits", "alignment_weights"
# Of the example with which the decoder is traced: rows, beams, tokens before and new ones.
ROWS, BEAMS, PAST, NEW = 2, 2, 3, 4

Heads = Sequence[tuple[int, int]]


class EncoderGraph(torch.nn.Module):
    """The encoder, and the keys and values of the cross-attention of each layer."""

    def __init__(self, module: PreTrainedModel) -> None:
        super().__init__()
        self.model: Any = module.model

    def forward(self, input_features: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return keys and values of each layer. Shape: (rows, heads, frames, size of a head)."""
        hidden = self.model.encoder(input_features).last_hidden_state
        found = list[torch.Tensor]()
        for layer in self.model.decoder.layers:
            attention = layer.encoder_attn
            found += (
                _by_head(attention, project(hidden))
                for project in (attention.k_proj, attention.v_proj)
            )
        return tuple(found)


class DecoderGraph(torch.nn.Module):
    """The decoder with a cache.

    Args:
        heads: layer and number of the heads whose weights say when a token is spoken.
    """

    def __init__(self, module: PreTrainedModel, heads: Heads) -> None:
        super().__init__()
        self.decoder: Any = module.model.decoder
        self.head: Any = module.get_output_embeddings()
        self.heads = heads

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        beam_idx: torch.Tensor,
        *states: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Return logits, the weights of the heads, and keys and values with those of new tokens.

        Args:
            input_ids: the new tokens. Shape: (rows * beams, tokens).
            attention_mask: 0 for padding. Shape: (rows * beams, tokens so far).
            position_ids: the positions of the new tokens.
            beam_idx: the beam that each one continues.
            states: keys and values of each layer, of the tokens before, and of the cross-attention.
        """
        layers = self.decoder.layers
        own, cross = states[: 2 * len(layers)], states[2 * len(layers) :]
        mask = _causal(attention_mask, input_ids.shape[1])
        positions = self.decoder.embed_positions.weight[position_ids]
        hidden = self.decoder.embed_tokens(input_ids) + positions
        present, weights = list[torch.Tensor](), list[torch.Tensor]()
        for number, layer in enumerate(layers):
            pair = slice(2 * number, 2 * number + 2)
            past = tuple(each.index_select(0, beam_idx) for each in own[pair])
            hidden, kept = _attend(layer, hidden, past, mask)
            heads = [head for at, head in self.heads if at == number]
            hidden, seen = _attend_to_audio(layer, hidden, cross[pair], heads)
            present += kept
            weights += seen
            inner = layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden)))
            hidden = hidden + layer.fc2(inner)
        logits = self.head(self.decoder.layer_norm(hidden))
        return (logits, *([torch.cat(weights, 1)] if weights else []), *present)


def _attend(
    layer: Any, hidden: torch.Tensor, past: Sequence[torch.Tensor], mask: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the output of the self-attention, and its keys and values."""
    attention, normed = layer.self_attn, layer.self_attn_layer_norm(hidden)
    query = _by_head(attention, attention.q_proj(normed) * attention.scaling)
    new = (_by_head(attention, project(normed)) for project in (attention.k_proj, attention.v_proj))
    key, value = (torch.cat(pair, 2) for pair in zip(past, new, strict=True))
    found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
    return hidden + attention.out_proj(found.transpose(1, 2).flatten(2)), [key, value]


def _attend_to_audio(
    layer: Any, hidden: torch.Tensor, audio: Sequence[torch.Tensor], heads: Sequence[int]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the output of the cross-attention, and the weights of some of its heads."""
    attention, (key, value) = layer.encoder_attn, audio
    normed = layer.encoder_attn_layer_norm(hidden)
    rows, tokens, size = key.shape[0], *hidden.shape[1:]
    together = (attention.q_proj(normed) * attention.scaling).reshape(rows, -1, size)
    query = _by_head(attention, together)
    found = functional.scaled_dot_product_attention(query, key, value, scale=1.0)
    joined = found.transpose(1, 2).reshape(-1, tokens, size)
    weights = list[torch.Tensor]()
    for head in heads:
        scores = query[:, head] @ key[:, head].transpose(1, 2)
        weights.append(scores.softmax(-1).reshape(-1, 1, tokens, key.shape[2]))
    return hidden + attention.out_proj(joined), weights


def _by_head(attention: Any, states: torch.Tensor) -> torch.Tensor:
    """Return states by head. Shape: (rows, heads, positions, size of a head)."""
    return states.unflatten(-1, (attention.num_heads, attention.head_dim)).transpose(1, 2)


def _causal(attention_mask: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return what is added to the scores of new tokens. Shape: (rows, 1, tokens, tokens so far)."""
    order = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    earlier = order[None, :] <= order[-tokens:, None]
    seen = earlier[None, None] & attention_mask[:, None, None, :].bool()
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)


def alignment_heads(config: GenerationConfig) -> Heads:
    """Return layer and number of the heads whose weights say when a token is spoken."""
    return sorted((int(layer), int(head)) for layer, head in getattr(config, "alignment_heads", ()))


def convert(
    module: PreTrainedModel, config: GenerationConfig, batch: Mapping[str, torch.Tensor]
) -> tuple[Any, Any]:
    """Return encoder and decoder as instances of `openvino.Model`.

    Args:
        batch: inputs of some rows.
    """
    features = batch["input_features"]
    return _convert_encoder(module, features), _convert_decoder(module, alignment_heads(config))


def _convert_encoder(module: PreTrainedModel, features: torch.Tensor) -> Any:
    """Return the encoder as an `openvino.Model`, for any number of rows.

    Args:
        features: the features of some rows.
    """
    graph = _convert(EncoderGraph(module), (features,))
    _name(graph.inputs, ["input_features"])
    _name(graph.outputs, _names("cross", module.config))
    graph.reshape({"input_features": [-1, *features.shape[1:]]})
    return graph


def _convert_decoder(module: PreTrainedModel, heads: Heads) -> Any:
    """Return the decoder as an `openvino.Model` whose state has the keys and values of tokens."""
    config: Any = module.config
    past, present, cross = (_names(kind, config) for kind in ("past", "present", "cross"))
    graph = _convert(DecoderGraph(module, heads), tuple(_example(config)))
    _name(graph.inputs, [*INPUTS, *past, *cross])
    _name(graph.outputs, [LOGITS, *([WEIGHTS] if heads else []), *present])
    number, size = config.decoder_attention_heads, config.d_model // config.decoder_attention_heads
    shapes = {
        **{name: [-1, -1] for name in INPUTS[:3]},
        "beam_idx": [-1],
        **{name: [-1, number, -1, size] for name in past},
        **{name: [-1, number, config.max_source_positions, size] for name in cross},
    }
    graph.reshape(shapes)
    manager = Manager()
    parameters, results = graph.get_parameters(), graph.get_results()
    states = zip(parameters[len(INPUTS) : -len(cross)], results[-len(present) :], strict=True)
    manager.register_pass(MakeStateful(list(states)))
    manager.run_passes(graph)
    return graph


def _convert(graph: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> Any:
    """Return a graph as an `openvino.Model`; OpenVINO's own trace takes twice as long."""
    traced = torch.jit.trace(graph.eval(), example, check_trace=False)
    return openvino.convert_model(traced, example_input=example)


def _example(config: Any) -> Iterator[torch.Tensor]:
    """Yield inputs of the decoder."""
    rows, number = ROWS * BEAMS, config.decoder_attention_heads
    size = config.d_model // number
    yield torch.ones(rows, NEW, dtype=torch.long)
    yield torch.ones(rows, PAST + NEW, dtype=torch.long)
    yield torch.arange(PAST, PAST + NEW).expand(rows, -1)
    yield torch.arange(rows)
    for _ in range(2 * config.decoder_layers):
        yield torch.zeros(rows, number, PAST, size)
    for _ in range(2 * config.decoder_layers):
        yield torch.zeros(ROWS, number, config.max_source_positions, size)


def _names(kind: str, config: Any) -> list[str]:
    """Return the names of the keys and values of each layer."""
    layers = range(config.decoder_layers)
    return [f"{kind}.{number}.{part}" for number in layers for part in ("key", "value")]


def _name(ports: Sequence[Any], names: Sequence[str]) -> None:
    for port, name in zip(ports, names, strict=True):
        port.get_tensor().set_names({name})


def _in_bfloat16(encoder: Any, decoder: Any) -> tuple[Any, Any]:
    """Have the encoder return bfloat16, which the decoder would make of float32 for each token."""
    outputs, inputs = PrePostProcessor(encoder), PrePostProcessor(decoder)
    for number, _ in enumerate(encoder.outputs):
        outputs.output(number).tensor().set_element_type(openvino.Type.bf16)
    for name in (port.get_any_name() for port in decoder.inputs[len(INPUTS) :]):
        inputs.input(name).tensor().set_element_type(openvino.Type.bf16)
    return outputs.build(), inputs.build()


class DecoderState:
    """The cache of one call of `generate`, in the state of a request of OpenVINO.

    Args:
        audio: keys and values of the cross-attention by their names, as tensors of OpenVINO.
        rows: the number of rows, over all beams.
    """

    def __init__(self, decoder: Any, audio: Mapping[str, Any], rows: int) -> None:
        self._request = decoder.create_infer_request()
        for name, tensor in audio.items():
            self._request.set_tensor(name, tensor)
        for state in self._request.query_state():
            _, heads, _, size = state.state.shape
            state.state = openvino.Tensor(np.zeros((rows, heads, 0, size), np.float32))
        self._beams = np.arange(rows)
        self._length = 0

    def get_seq_length(self) -> int:
        """Return how many tokens it has."""
        return self._length

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Have each row of the next tokens continue another one."""
        self._beams = beam_idx.numpy()

    def decode(
        self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor | None
    ) -> Mapping[str, torch.Tensor]:
        """Add tokens, and return the outputs of the decoder for them."""
        rows, new = ids.shape
        before, self._length = self._length, self._length + new
        if mask is None:
            mask = torch.ones(rows, self._length, dtype=torch.long)
        if positions is None:
            positions = torch.arange(before, self._length).expand(rows, -1)
        arrays = (ids.numpy(), mask.long().numpy(), positions.numpy(), self._beams)
        found = self._request.infer(dict(zip(INPUTS, arrays, strict=True)))
        self._beams = np.arange(rows)
        return {name: torch.from_numpy(found[name]) for name in (LOGITS, WEIGHTS) if name in found}


class _Encoder(torch.nn.Module):
    """The compiled encoder, as `generate` calls it."""

    main_input_name = "input_features"

    def __init__(self, compiled: Any) -> None:
        super().__init__()
        self._compiled = compiled

    def forward(self, input_features: torch.Tensor, **_options: Any) -> BaseModelOutput:
        """Return keys and values of the cross-attention as hidden states."""
        # The tensors belong to the request, which runs once.
        request = self._compiled.create_infer_request()
        request.infer([input_features.numpy()])
        return BaseModelOutput(hidden_states=tuple(request.output_tensors))


class _Whisper(WhisperWithOtherCache):
    """A model without weights whose encoder and decoder OpenVINO runs.

    `generate` is the function of transformers.
    """

    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, config: PreTrainedConfig, encoder: Any, decoder: Any, heads: Heads) -> None:
        with torch.device("meta"):
            super().__init__(config)
        self._encoder, self._decoder, self._heads = _Encoder(encoder), decoder, heads

    def get_encoder(self, *_: Any) -> torch.nn.Module:
        return self._encoder

    def forward(
        self,
        input_features: torch.Tensor | None = None,
        *,
        decoder_input_ids: torch.Tensor,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: DecoderState | None = None,
        output_attentions: bool = False,
        **_options: Any,
    ) -> Seq2SeqLMOutput:
        """Return the logits of new tokens."""
        if past_key_values is None:
            audio = encoder_outputs or self._encoder(input_features)
            named = dict(zip(_names("cross", self.config), audio.hidden_states, strict=True))
            past_key_values = DecoderState(self._decoder, named, len(decoder_input_ids))
        found = past_key_values.decode(
            decoder_input_ids, decoder_attention_mask, decoder_position_ids
        )
        return Seq2SeqLMOutput(
            logits=found[LOGITS],
            past_key_values=past_key_values,
            cross_attentions=self._by_layer(found[WEIGHTS]) if output_attentions else None,
        )

    def _by_layer(self, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the weights of each layer, which are zeros for heads that say nothing of times."""
        rows, _, tokens, frames = weights.shape
        shape = (rows, self.config.decoder_attention_heads, tokens, frames)
        layers = [torch.zeros(shape) for _ in range(self.config.decoder_layers)]
        for number, (layer, head) in enumerate(self._heads):
            layers[layer][:, head] = weights[:, number]
        return tuple(layers)


class WhisperModel(Model):
    """Whisper in OpenVINO."""

    def __init__(
        self,
        graphs: Sequence[Any],
        config: PreTrainedConfig,
        generation_config: GenerationConfig,
        settings: Mapping[str, int | str],
    ) -> None:
        if settings["INFERENCE_PRECISION_HINT"] == "bf16":
            graphs = _in_bfloat16(*graphs)
        encoder, decoder = (openvino.compile_model(each, "CPU", dict(settings)) for each in graphs)
        heads = alignment_heads(generation_config)
        self._module = _Whisper(config, encoder, decoder, heads).eval()
        self._module.generation_config = generation_config

    @torch.inference_mode()
    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return the logits of tokens; the first one is read alone, so that the cache is, too."""
        ids = batch["decoder_input_ids"]
        first = self._module(batch["input_features"], decoder_input_ids=ids[:, :1])
        state = first.past_key_values
        others = self._module(decoder_input_ids=ids[:, 1:], past_key_values=state)
        return {LOGITS: torch.cat([first.logits, others.logits], 1)}

    @torch.inference_mode()
    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> Any:
        return self._module.generate(**batch, generation_config=config, **extra)


def read_graphs(folder: Path) -> list[Any]:
    """Return encoder and decoder of a folder."""
    core = openvino.Core()
    return [core.read_model(folder / name) for name in (ENCODER, DECODER)]
