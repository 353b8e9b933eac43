"""CUDA graphs of packed forwards: a few shapes are recorded at load, and requests replay them.

A forward of an encoder is hundreds of kernels, each of which Python starts. A graph starts all of
them at once. It has fixed shapes and fixed memory, so the inputs of a forward are copied to a
buffer and filled up to the next shape. A forward that no shape holds runs without a graph.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ..batching.padding import HostCopy, Tensors, move_together, pinned, views
from ..batching.rows import Row, outputs_agree
from ..batching.sequence_packing import BORDERS, SEGMENTS, PackedBatch, unpack, with_borders

logger = logging.getLogger(__name__)

Outputs = Mapping[str, torch.Tensor]
Forward = Callable[[], Outputs]
# Returns a function that runs a forward again, with what is in the buffer of its inputs.
Record = Callable[[Forward], Forward]

# Tokens of the smallest shape. Up to `COARSE` tokens, a forward takes about the time of its
# kernels' start, and padding costs little.
SMALLEST, COARSE = 64, 1024
# Attention starts a block of kernels for each text of a shape and each 128 tokens of the longest,
# whether they are there or not. Shapes for long texts therefore have fewer of them.
LENGTHS = (128, 512, 2048, 8192)
SHORTEST_MEAN, LONGER_MEAN = 16, 64
# Recording ends when graphs have this share of the memory of the device.
MEMORY_SHARE = 0.1
RUNS_BEFORE = 2  # libraries allocate their workspaces in the first run


@dataclass(frozen=True, order=True)
class Shape:
    """The sizes of a graph: at most this number of tokens, and of tokens of the longest text."""

    tokens: int
    longest: int

    @property
    def texts(self) -> int:
        """The maximum number of texts."""
        mean = SHORTEST_MEAN if self.longest <= LENGTHS[0] else LONGER_MEAN
        return max(1, self.tokens // mean)

    def holds(self, tokens: int, texts: int, longest: int) -> bool:
        """Return whether a forward of these sizes can be filled up to this shape."""
        return tokens <= self.tokens and texts <= self.texts and longest <= self.longest


def shapes(budget: int, longest: int) -> list[Shape]:
    """Return the shapes to record, the largest first.

    Args:
        budget: the maximum tokens of a forward.
        longest: the maximum tokens of a text.
    """
    sizes, size = [], SMALLEST
    while size < budget:
        parts = 2 if size < COARSE else 4
        sizes += [size + size * part // parts for part in range(parts)]
        size *= 2
    sizes = [*(each for each in sizes if each < budget), budget]
    shorter = [length for length in LENGTHS if length < longest]
    return sorted(
        (
            Shape(size, length)
            for length, before in zip((*shorter, longest), (0, *shorter), strict=True)
            for size in sizes
            if size > before
        ),
        reverse=True,
    )


class GraphsDiffer(RuntimeError):
    """A graph has other outputs than the forward that it was recorded of."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(f"a graph of {shape.tokens:,} tokens has other outputs")


class GraphedForward:
    """Forwards of packed texts in one row, as graphs.

    Args:
        compute: the forward, of the tensors and the tokens of the longest text.
        per_token: names of the outputs of shape (1, tokens, ...); others have shape (texts, ...).
        record: records a forward; by default as a CUDA graph.
    """

    def __init__(
        self,
        compute: Callable[[Mapping[str, torch.Tensor], int], Outputs],
        device: torch.device,
        per_token: Sequence[str],
        record: Record | None = None,
    ) -> None:
        self._compute, self._device, self._per_token = compute, device, per_token
        self._record = record or CudaGraphs(device)
        self._buffer = torch.zeros(0, dtype=torch.long, device=device)
        self._replays = dict[Shape, Forward]()

    @property
    def shapes(self) -> list[Shape]:
        """The recorded shapes, the smallest first."""
        return list(self._replays)

    @torch.inference_mode()
    def record(self, example: PackedBatch, texts: Sequence[Row], shapes: Sequence[Shape]) -> None:
        """Record shapes, in this order, as far as the memory for graphs suffices.

        Args:
            example: distinct texts in one row, whose outputs with and without graphs are compared.
            texts: these texts.

        Raises:
            GraphsDiffer: a graph has other outputs than the forward.
        """
        started, before = time.perf_counter(), _reserved(self._device)
        inputs = with_borders(example.inputs)
        longest = max(map(len, texts))
        shapes = [shape for shape in shapes if shape.holds(*_sizes(inputs), longest)]
        eager = self._compute(move_together(inputs, self._device), longest)
        expected = unpack(HostCopy(eager).arrays(), example, texts, self._per_token)
        self._buffer = torch.zeros(
            max(_numbers(_fill(inputs, shape)) for shape in shapes),
            dtype=torch.long,
            device=self._device,
        )
        for shape in shapes:
            if _reserved(self._device) - before > _memory_limit(self._device):
                break
            static = self._copy(_fill(inputs, shape))
            self._replays[shape] = self._record(partial(self._compute, static, shape.longest))
            copied = HostCopy(self._run(shape, inputs)).arrays()
            found = unpack(copied, example, texts, self._per_token)
            if not outputs_agree(found, expected, copied, exact=False):
                raise GraphsDiffer(shape)
        self._replays = dict(sorted(self._replays.items()))
        logger.info(
            "CUDA graphs: %d of %d shapes, up to %s tokens, recorded in %.1f s, %.2f GB",
            *(len(self._replays), len(shapes), f"{max(self._replays).tokens:,}"),
            *(time.perf_counter() - started, (_reserved(self._device) - before) / 1e9),
        )

    def run(self, inputs: Tensors, longest: int) -> Outputs | None:
        """Return the outputs of inputs on the host; None if no recorded shape holds them.

        They are valid until the next run, on the stream that runs it.
        """
        sizes = _sizes(inputs)
        shape = next((each for each in self._replays if each.holds(*sizes, longest)), None)
        return None if shape is None else self._run(shape, inputs)

    def _run(self, shape: Shape, inputs: Tensors) -> Outputs:
        tokens, texts = _sizes(inputs)
        self._copy(_fill(inputs, shape))
        outputs = self._replays[shape]()
        return {
            name: output[:, :tokens] if name in self._per_token else output[:texts]
            for name, output in outputs.items()
        }

    def _copy(self, inputs: Tensors) -> Tensors:
        """Return inputs in the buffer of the device, after one transfer."""
        flat = pinned(inputs, self._device)
        part = self._buffer[: flat.numel()]
        part.copy_(flat, non_blocking=True)
        return views(part, inputs)


def _sizes(inputs: Tensors) -> tuple[int, int]:
    """Return the number of slots and of texts."""
    return inputs[SEGMENTS].shape[1], len(inputs[BORDERS]) - 1


def _numbers(inputs: Tensors) -> int:
    return sum(tensor.numel() for tensor in inputs.values())


def _fill(inputs: Tensors, shape: Shape) -> Tensors:
    """Return inputs with the sizes of a shape: more slots, of no text, and more empty texts."""
    filled = {}
    for name, tensor in inputs.items():
        if name == BORDERS:
            filled[name] = tensor[-1].repeat(shape.texts + 1)
            filled[name][: len(tensor)] = tensor
        else:
            filled[name] = tensor.new_full((1, shape.tokens), -1 if name == SEGMENTS else 0)
            filled[name][:, : tensor.shape[1]] = tensor
    return filled


class CudaGraphs:
    """Records forwards as CUDA graphs, which share the memory of what they compute."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()

    def __call__(self, forward: Forward) -> Forward:
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(RUNS_BEFORE):
                    forward()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the device while this one records.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                outputs = forward()

        def replay() -> Outputs:
            graph.replay()
            return outputs

        return replay


def _memory_limit(device: torch.device) -> float:
    """Return the bytes that graphs may have on a device."""
    if device.type != "cuda":
        return math.inf
    return MEMORY_SHARE * torch.cuda.get_device_properties(device).total_memory


def _reserved(device: torch.device) -> int:
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0
