"""MLServer's Hugging Face runtime with the same checkpoint, configured as in its documentation.

It runs in float32 on transformers 4, the newest major version it supports. Adaptive batching is off
as by default: with it most requests of 32 clients fail.

https://mlserver.readthedocs.io/en/latest/runtimes/huggingface.html
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.contenders.external import ExternalContender
from hf_serve.scripts.serving.ports import HOST

TASKS = {
    "sequence_classification": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
}
RUNTIME = "mlserver_huggingface.HuggingFaceRuntime"
START = "from mlserver.cli import main; main()"


class MLServer(ExternalContender):
    """A model on MLServer, called with the Open Inference Protocol.

    Args:
        mode: the task of the model.
        checkpoint: the model.
        work: folder for the settings and the log.
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
        texts = inputs if isinstance(inputs, dict) else {"args": inputs}
        tensors = [
            {"name": name, "shape": [1], "datatype": "BYTES", "data": [text]}
            for name, text in texts.items()
        ]
        return json.dumps({"inputs": tensors}, ensure_ascii=False)

    def _server(self, port: int) -> dict[str, Any]:
        # gRPC uses a port chosen by the system.
        ports = {"http_port": port, "grpc_port": 0, "metrics_endpoint": None}
        return {"host": HOST, **ports, "parallel_workers": 0, "debug": False}

    def _model(self) -> dict[str, Any]:
        path = str(self._checkpoint)
        extra = {
            "task": TASKS[self._mode],
            "pretrained_model": path,
            "pretrained_tokenizer": path,
        }
        return {"name": "model", "implementation": RUNTIME, "parameters": {"extra": extra}}

    def _write(self, name: str, content: dict[str, Any]) -> None:
        (self._settings / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
