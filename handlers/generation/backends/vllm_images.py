"""The images of prompts for vLLM.

The checkpoint's own processor reads the images, in the worker, and vLLM gets its pixels: another
version of transformers, or torchvision instead of Pillow, would make others. vLLM takes items, each
with a part of the tensors and the places of its vectors among the tokens.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedConfig

from ...errors import RequestTooLarge, WrongCheckpoint
from ..generator import Prompt

Array = npt.NDArray[Any]
# How vLLM joins the tensors of several items: as the rows of a new first dimension, or along the
# one that they have.
Joined = Literal["batched", "flat"]
# The maximum size of the pixels of a prompt. The program reads a command as one line.
MAX_BYTES = 1 << 28


@dataclass(frozen=True)
class Item:
    """What vLLM reads of one image, or of one of its tiles.

    Attributes:
        tensors: its model inputs, and how vLLM joins them with the tensors of other items.
        vectors: the number of its vectors; None where all items of a prompt have one number.
    """

    tensors: Mapping[str, tuple[Joined, Array]]
    vectors: int | None = None


# Makes the items of a prompt, given the model inputs of its images and the model's config.
ItemsOf = Callable[[Mapping[str, Array], PreTrainedConfig], Iterable[Item]]


def _by_image(media: Mapping[str, Array], _: PreTrainedConfig) -> Iterator[Item]:
    """Images of one size: LLaVA."""
    return (Item({"pixel_values": ("batched", each)}) for each in media["pixel_values"])


def _by_tile(media: Mapping[str, Array], _: PreTrainedConfig) -> Iterator[Item]:
    """Tiles, into which large images are split and which have one size: Idefics3."""
    (pixels,), (mask,) = media["pixel_values"], media["pixel_attention_mask"]
    for number in range(len(pixels)):
        tile = slice(number, number + 1)
        tensors: dict[str, tuple[Joined, Array]] = {
            "pixel_values": ("flat", pixels[tile]),
            "pixel_attention_mask": ("flat", mask[tile].astype(np.bool_)),
            "num_patches": ("batched", np.array(1)),
        }
        yield Item(tensors)


def _by_grid(media: Mapping[str, Array], config: PreTrainedConfig) -> Iterator[Item]:
    """Images of any size, whose grids say which patches they have: Qwen2-VL and Qwen2.5-VL."""
    start, merged = 0, config.vision_config.spatial_merge_size**2
    for grid in media["image_grid_thw"]:
        patches = prod(map(int, grid))
        tensors: dict[str, tuple[Joined, Array]] = {
            "pixel_values": ("flat", media["pixel_values"][start : start + patches]),
            "image_grid_thw": ("batched", grid),
        }
        yield Item(tensors, patches // merged)
        start += patches


# The families whose texts were compared with transformers'.
FAMILIES: Mapping[str, ItemsOf] = {
    "llava": _by_image,
    "idefics3": _by_tile,
    "qwen2_vl": _by_grid,
    "qwen2_5_vl": _by_grid,
}
# Parts of a model that vLLM has for LLaVA, too, but which take other tensors.
OTHER_VISION = ("pixtral",)


def items_of_family(config: PreTrainedConfig) -> ItemsOf:
    """Return how the images of a model are given to vLLM.

    Raises:
        WrongCheckpoint: they are not given to it.
    """
    vision = getattr(getattr(config, "vision_config", None), "model_type", "")
    items = FAMILIES.get(config.model_type)
    if items is None or vision in OTHER_VISION:
        *names, last = FAMILIES
        raise WrongCheckpoint(
            "config.json",
            f"is of a {config.model_type} model{f' with {vision}' if items else ''}, whose images"
            f" engine: vllm does not support: it supports {', '.join(names)} and {last}",
            "leave engine out",
        )
    return items


def images_of(prompt: Prompt, config: PreTrainedConfig) -> list[dict[str, Any]]:
    """Return the images of a prompt as a command has them.

    Raises:
        RequestTooLarge: their pixels are too many for a command.
    """
    if not prompt.media:
        return []
    if (size := sum(each.nbytes for each in prompt.media.values())) > MAX_BYTES:
        raise RequestTooLarge(
            f"The images of the prompt have {size / 1e6:,.0f} MB when they are processed, and at"
            f" most {MAX_BYTES / 1e6:,.0f} MB are supported; send fewer or smaller images."
        )
    items = list(items_of_family(config)(prompt.media, config))
    tokens = np.asarray(prompt.features["input_ids"])
    places = np.flatnonzero(tokens == config.image_token_id)
    found, end = [], 0
    for item in items:
        begin, end = end, end + (item.vectors or len(places) // len(items))
        found.append(_command(item, places[begin:end]))
    return found


def _command(item: Item, places: npt.NDArray[np.intp]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for name, (_, array) in item.tensors.items():
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return {
        "places": places.tolist(),
        "hash": digest.hexdigest(),
        "tensors": {name: _tensor(*each) for name, each in item.tensors.items()},
    }


def _tensor(joined: Joined, array: Array) -> dict[str, Any]:
    return {
        "joined": joined,
        "dtype": str(array.dtype),
        "shape": array.shape,
        "data": base64.b64encode(np.ascontiguousarray(array).data).decode(),
    }
