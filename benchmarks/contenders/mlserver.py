"""MLServer's Hugging Face runtime with the same checkpoint, as its documentation sets it up.

It runs on the transformers 4 that it still starts with, in float32. Its adaptive batching stays
off, as it is unless somebody asks: with it most requests of 32 clients fail.

https://mlserver.readthedocs.io/en/latest/runtimes/huggingface.html
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.contenders.foreign import Foreign
from scripts.kit.ports import HOST

TASKS = {
    "sequence_classification": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
}
RUNTIME = "mlserver_huggingface.HuggingFaceRuntime"
START = "from mlserver.cli import main; main()"


class MLServer(Foreign):
    """One model behind MLServer, asked by the Open Inference Protocol.

    Args:
        mode: what the checkpoint's head is for.
        checkpoint: the model.
        work: takes its settings and its log.
    """

    name = "mlserver"
    precision = "float32"
    environment = ".venv-mlserver"
    route = "/v2/models/model/infer"
    health = "/v2/models/model/ready"

    def __init__(self, mode: str, checkpoint: Path, work: Path) -> None:
        super().__init__(work)
        self._mode, self._checkpoint = mode, checkpoint
        self._settings = work / "servers" / f"{self.name}_{mode}"

    def command(self, port: int) -> list[str | Path]:
        self._settings.mkdir(parents=True, exist_ok=True)
        self._write("settings.json", self._server(port))
        self._write("model-settings.json", self._model())
        return ["-c", START, "start", self._settings]

    def body(self, inputs: Any) -> str:
        """Return the tensors of a row: a text, or a question and its context."""
        asked = inputs if isinstance(inputs, dict) else {"args": inputs}
        tensors = [
            {"name": name, "shape": [1], "datatype": "BYTES", "data": [text]}
            for name, text in asked.items()
        ]
        return json.dumps({"inputs": tensors}, ensure_ascii=False)

    def _server(self, port: int) -> dict[str, Any]:
        # gRPC listens too, on a port that the system picks.
        ports = {"http_port": port, "grpc_port": 0, "metrics_endpoint": None}
        return {"host": HOST, **ports, "parallel_workers": 0, "debug": False}

    def _model(self) -> dict[str, Any]:
        place = str(self._checkpoint)
        asked = {"task": TASKS[self._mode], "pretrained_model": place}
        extra = {**asked, "pretrained_tokenizer": place}
        return {"name": "model", "implementation": RUNTIME, "parameters": {"extra": extra}}

    def _write(self, name: str, content: dict[str, Any]) -> None:
        (self._settings / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
