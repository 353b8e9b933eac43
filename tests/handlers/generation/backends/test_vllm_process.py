"""The process of vLLM, with an engine that stands in for vLLM's."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

NAMES = {
    "vllm": ["SamplingParams"],
    "vllm.distributed.device_communicators": ["shm_broadcast"],
    "vllm.engine.arg_utils": ["AsyncEngineArgs"],
    "vllm.inputs": ["mm_input", "tokens_input"],
    "vllm.multimodal.inputs": [
        *("MultiModalFieldConfig", "MultiModalKwargsItem", "MultiModalKwargsItems"),
        "PlaceholderRange",
    ],
    "vllm.sampling_params": ["RequestOutputKind", "StructuredOutputsParams"],
    "vllm.v1.engine.async_llm": ["AsyncLLM"],
    "vllm.v1.engine.exceptions": ["EngineDeadError", "EngineGenerateError"],
    "vllm.v1.metrics.loggers": ["StatLoggerBase"],
}
PROGRAM = "hf_serve.handlers.generation.backends.vllm_process"
START = {"start": 1, "prompt": [5], "settings": {}, "in_parts": False}
PING, PONG = {"ping": True}, {"pong": True}


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the process, imported without vLLM."""
    for name, values in NAMES.items():
        module = ModuleType(name)
        for value in values:
            kind = Exception if value.endswith("Error") else SimpleNamespace
            setattr(module, value, type(value, (kind,), {}))
        for part in range(name.count(".") + 1):
            parent = ".".join(name.split(".")[: part + 1])
            monkeypatch.setitem(sys.modules, parent, sys.modules.get(parent, ModuleType(parent)))
        monkeypatch.setitem(sys.modules, name, module)
    yield importlib.import_module(PROGRAM)
    del sys.modules[PROGRAM]


class Writer:
    """The connection to the worker; it keeps what is sent."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def write(self, line: bytes) -> None:
        self.events.append(json.loads(line))


class Commands:
    """The commands of the worker, which the process has read where it waits for the next."""

    def __init__(self) -> None:
        self.lines = asyncio.Queue[bytes]()

    async def send(self, *commands: Any) -> None:
        for command in commands:
            self.lines.put_nowait(json.dumps(command).encode())
        for _ in range(10):
            await asyncio.sleep(0)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.lines.get()


def test_a_ping_is_answered_after_a_step_where_a_text_runs(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps run in a process of their own, which may hang while this one reads commands."""

    async def never(*_: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    async def run() -> None:
        steps, writer, commands = program.Steps(), Writer(), Commands()
        process = program.Process(SimpleNamespace(), steps, writer)
        running = asyncio.create_task(process.run(commands))
        await commands.send(PING)
        assert writer.events == [PONG]
        await commands.send(START, PING)
        assert writer.events == [PONG]
        steps.record(SimpleNamespace(kv_cache_usage=0.5))
        steps.record(None)
        assert writer.events == [PONG] * 2
        await commands.send(PING, {"cancel": 1})
        assert writer.events == [PONG] * 3
        running.cancel()

    monkeypatch.setattr(program, "generate", never)
    asyncio.run(run())
