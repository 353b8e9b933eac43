from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.config.messages import enumerate_names, quote, shorten, suggest
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.formats import check_config


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, 10**3000, 10**9000, ["x" * 99] * 99, {"x" * 99: [[[[[1]]]]]}, b"x" * 99, None],
    ids=range(7),
)
def test_a_quoted_value_is_short(value: Any) -> None:
    assert 0 < len(quote(value)) <= 60


def test_short_values_are_quoted_as_they_are() -> None:
    assert [quote("top_kk"), quote(2.5), quote([1])] == ["'top_kk'", "2.5", "[1]"]
    assert (shorten("x" * 60), shorten("x" * 61)) == ("x" * 60, f"{'x' * 57}...")


def test_of_many_names_the_first_are_listed() -> None:
    assert enumerate_names(["a", "b"]) == "a, b"
    listed = enumerate_names({f"{number}{'x' * 99}": 0 for number in range(1000)})
    assert listed.endswith(", and 988 more") and len(listed) < 1300


def test_the_closest_choice_is_suggested() -> None:
    assert suggest("top_kk", ["top_p", "top_k"]) == "did you mean 'top_k'?"
    assert suggest("zz", ["top_p", "top_k"]) == "use one of top_p, top_k"


def test_long_words_and_many_choices_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []

    def compare(word: str, choices: list[str], n: int) -> list[str]:
        compared.extend([word, *choices])
        return choices[:0]

    monkeypatch.setattr("hf_serve.handlers.config.messages.get_close_matches", compare)
    suggest("x" * 10**6, ["top_k"])
    assert not compared
    suggest("top_k", ["x" * 10**6, *(f"choice {number}" for number in range(10_000))])
    assert len(compared) <= 200 and max(map(len, compared)) < 20


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
    (f"{MODE}1: 2\n", "has the key 1, which is no text; write it in quotes."),
    (
        f"{MODE}  moderation: {{no: x}}\n",
        "handler.moderation has the key False, which is no text; write it in quotes.",
    ),
    (f"{MODE}  device_map: {{0: cpu}}\n", "handler.device_map has the key 0, which is no text"),
    (f"{MODE}  temperature: .inf\n", "handler.temperature is inf; it should be a finite number"),
    (f"{MODE}  min_agreement: .nan\n", "handler.min_agreement is nan; it should be a finite"),
    (f"{MODE}  predict_timeout: .inf\n", "handler.predict_timeout is inf; it should be a finite"),
    (f"{MODE}batchSize: 3000000000\n", "batchSize is 3000000000, and TorchServe reads at most"),
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
