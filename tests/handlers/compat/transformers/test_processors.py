from __future__ import annotations

import json
from pathlib import Path

import pytest

from handlers.compat.transformers.processors import pillow_processor, read_image_processor


@pytest.mark.parametrize(
    "name", ["ViTImageProcessor", "SegformerImageProcessor", "Idefics3ImageProcessor"]
)
def test_a_processor_of_pillow_is_found(tmp_path: Path, name: str) -> None:
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"image_processor_type": name}), encoding="utf-8")
    found = read_image_processor(tmp_path)
    assert type(found).__name__.startswith(name)


def test_an_unknown_processor_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "preprocessor_config.json"
    file.write_text('{"image_processor_type": "NoImageProcessor"}', encoding="utf-8")
    with pytest.raises(ValueError, match="image processor"):
        read_image_processor(tmp_path)
    assert pillow_processor("NoImageProcessorPil") is None
