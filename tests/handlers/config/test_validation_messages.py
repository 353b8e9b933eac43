from __future__ import annotations

from pathlib import Path

import pytest

from handlers.config.choices import modes
from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig
from handlers.formats import check_config

MODE = "handler:\n  mode: sequence_classification\n"
WRONG = [
    ("", "has no handler section; add handler: with a mode, as model_configs/ has it"),
    ("- a\n", "has no handler section"),
    ("handler:\n", "handler is None; it should be a section with keys."),
    ("handler:\n  max_length: 5\n", "handler.mode is missing; add it."),
    (
        "handler:\n  mode: sequence_clasification\n",
        "handler.mode is 'sequence_clasification'; did you mean 'sequence_classification'?",
    ),
    ("handler:\n  mode: x\n", f"handler.mode is 'x'; use one of {', '.join(modes())}."),
    (
        f"{MODE}  max_lenght: 5\n",
        "unknown key handler.max_lenght; did you mean 'max_length'?",
    ),
    (f"{MODE}minWorker: 1\n", "unknown key minWorker; did you mean 'minWorkers'?"),
    (f"{MODE}1: 2\n", "1 is 1; Keys should be strings."),
    (
        f"{MODE}  max_length: '150'\n",
        "handler.max_length is '150'; it should be a valid integer.",
    ),
    (f"{MODE}  max_length: true\n", "handler.max_length is True; it should be a valid integer."),
    (f"{MODE}  max_length: 0\n", "handler.max_length is 0; it should be greater than 0."),
    (f"{MODE}  do_lower_case: 'yes'\n", "handler.do_lower_case is 'yes'; it should be a valid"),
    (f"{MODE}  dtype: fp16\n", "handler.dtype is 'fp16'; it should be 'float32', 'bfloat16'"),
    (
        f"{MODE}  save_mode: pretraind\n",
        "handler.save_mode is 'pretraind'; did you mean 'pretrained'?",
    ),
    (f"{MODE}  revision: 1234567\n", "handler.revision is 1234567; it should be a valid string."),
    (
        f"{MODE}  tokenizer:\n    trucation_side: left\n",
        "unknown key handler.tokenizer.trucation_side; did you mean 'truncation_side'?",
    ),
    (f"{MODE}pt2:\n  compile: true\n", "pt2.compile is True; it should be a section with keys."),
    (
        f"{MODE}pt2:\n  compile:\n    enabel: true\n",
        "unknown key pt2.compile.enabel; did you mean 'enable'?",
    ),
    (
        f"minWorkers: 4\n{MODE}",
        "maxWorkers is 1 and minWorkers is 4; maxWorkers must be at least minWorkers.",
    ),
    (f"parallelLevel: 2\n{MODE}", "parallelLevel is set without parallelType; add parallelType"),
    (
        f"parallelType: tp\ntorchrun:\n  nproc-per-node: 2\n{MODE}  model_parallel: true\n",
        "handler.model_parallel and torchrun are both set; keep one",
    ),
    (f"deviceType: tpu\n{MODE}", "deviceType is 'tpu'; it should be 'cpu' or 'gpu'."),
    (
        f"{MODE}  device_map: cpu\n",
        "handler.device_map is 'cpu'; it should be a section with keys or 'auto', 'balanced', "
        "'balanced_low_0' or 'sequential'.",
    ),
    (
        f"{MODE}  device_map: {{layers: 1.5}}\n",
        "handler.device_map.layers is 1.5; it should be a valid integer or a valid string.",
    ),
    (f"{MODE}deviceIds: [0, x]\n", "deviceIds.1 is 'x'; it should be a valid integer."),
    (
        f"{MODE}  save_mode: onnx\n  batch_size: 4\n",
        "handler.batch_size is 4 and handler.save_mode is onnx, which takes any number of rows; "
        "use batchSize, TorchServe's own key, or leave it out.",
    ),
    (
        f"{MODE}  save_mode: onnx\npt2: inductor\n",
        "pt2.compile is enabled and handler.save_mode is onnx, which torch does not compile; "
        "use save_mode: pretrained",
    ),
    ("handler: {mode: [}\n", "is not YAML (while parsing a flow node"),
    ("handler: !!python/name:os.system x\n", "is not YAML (could not determine a constructor"),
    (b"\xff\xfe\x00", "is not YAML ('utf-8' codec can't decode byte 0xff"),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_a_mistake_is_reported_in_one_sentence(
    tmp_path: Path, text: str | bytes, sentence: str
) -> None:
    path = tmp_path / "model.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(WrongConfig) as caught:
        check_config(ModelConfig.read(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: {sentence}")
    assert message[-1] in ".?" and "\n" not in message
    assert len(message) < len(str(path)) + max(400, len(sentence) + 100)
