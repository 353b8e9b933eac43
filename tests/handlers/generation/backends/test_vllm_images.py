"""What vLLM is told of the images of a prompt; none of it needs vLLM."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.errors import RequestTooLarge, WrongCheckpoint
from hf_serve.handlers.generation.backends import vllm
from hf_serve.handlers.generation.backends.vllm import images_of, items_of_family
from tests.sentences import refused

TOKEN = 9


def config(family: str, vision: str = "clip_vision_model") -> Any:
    parts = SimpleNamespace(model_type=vision, spatial_merge_size=2)
    return SimpleNamespace(model_type=family, vision_config=parts, image_token_id=TOKEN)


def prompt(tokens: list[int], **media: Any) -> Any:
    return SimpleNamespace(features={"input_ids": tokens}, media=media)


def pixels_of(image: dict[str, Any]) -> Any:
    tensor = image["tensors"]["pixel_values"]
    numbers = np.frombuffer(base64.b64decode(tensor["data"]), dtype=tensor["dtype"])
    return numbers.reshape(tensor["shape"]).tolist()


def test_images_of_one_size_have_as_many_vectors_each() -> None:
    pixels = np.arange(2 * 3, dtype=np.float32).reshape(2, 3, 1, 1)
    given = prompt([1, TOKEN, TOKEN, TOKEN, TOKEN, 2], pixel_values=pixels)
    first, second = images_of(given, config("llava"))
    assert (first["places"], second["places"]) == ([1, 2], [3, 4])
    assert pixels_of(second) == pixels[1].tolist()
    assert second["tensors"]["pixel_values"]["joined"] == "batched"


def test_a_grid_says_which_patches_and_how_many_vectors_an_image_has() -> None:
    grids = np.array([[1, 2, 2], [1, 2, 4]])
    pixels = np.arange(12, dtype=np.float32)[:, None]
    given = prompt([TOKEN, 1, TOKEN, TOKEN], pixel_values=pixels, image_grid_thw=grids)
    first, second = images_of(given, config("qwen2_vl"))
    assert (first["places"], second["places"]) == ([0], [2, 3])
    assert pixels_of(first) == pixels[:4].tolist()
    assert pixels_of(second) == pixels[4:].tolist()


def test_each_tile_is_an_item() -> None:
    pixels, mask = np.arange(3 * 3, dtype=np.float32).reshape(1, 3, 3, 1, 1), np.ones((1, 3, 1, 1))
    given = prompt([TOKEN, TOKEN, 1, TOKEN, TOKEN, TOKEN, TOKEN], pixel_values=pixels)
    given.media["pixel_attention_mask"] = mask
    found = images_of(given, config("idefics3"))
    assert [each["places"] for each in found] == [[0, 1], [3, 4], [5, 6]]
    assert [pixels_of(each) for each in found] == [
        pixels[0, at : at + 1].tolist() for at in range(3)
    ]
    assert found[0]["tensors"]["pixel_attention_mask"]["dtype"] == "bool"
    assert found[0]["tensors"]["num_patches"]["shape"] == ()


def test_equal_images_have_one_hash_wherever_they_are() -> None:
    pixels = np.stack([np.full((3, 1, 1), each, np.float32) for each in (1, 2, 1)])
    found = images_of(prompt([TOKEN] * 3, pixel_values=pixels), config("llava"))
    first, second, third = (each["hash"] for each in found)
    assert first == third != second


def test_pixels_that_are_too_many_for_a_command_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vllm, "MAX_BYTES", 2_000_000)
    pixels = np.zeros((1, 3, 500, 500), np.float32)
    with refused(RequestTooLarge, "3 MB", "2 MB"):
        images_of(prompt([TOKEN], pixel_values=pixels), config("llava"))


@pytest.mark.parametrize(
    ("family", "vision"), [("gemma3", "siglip_vision_model"), ("llava", "pixtral")]
)
def test_a_family_whose_images_it_does_not_get_is_refused_by_name(family: str, vision: str) -> None:
    with refused(WrongCheckpoint, "config.json", family, "engine: vllm", "qwen2_vl"):
        items_of_family(config(family, vision))
