from __future__ import annotations

import json
from pathlib import Path

import pytest

from hf_serve.scripts.serving.ports import Ports
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import JSON_LOGGING, LOGGING


def test_both_log_settings_differ_in_the_form_of_a_line_only() -> None:
    plain, structured = (
        [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        for path in (LOGGING, JSON_LOGGING)
    )
    own = [line for line in structured if line not in plain]
    assert all("JSON" in line or "${short}" in line or "Log settings" in line for line in own)
    assert [line for line in structured if line in plain] == [
        line for line in plain if line in structured
    ]


def test_logs_in_json_are_read_as_plain_ones(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    text = 'W-9000-m_1.0-stdout MODEL_LOG - ValueError: "x"'
    line = {
        "time": "2026-01-01T00:00:00,000",
        "level": "INFO",
        "thread": "W-9000-m_1.0-stdout",
        "logger": "MODEL_LOG",
        "message": 'ValueError: "x"',
    }
    content = f'{json.dumps(line, separators=(",", ":"))}\nnot JSON\n{{"time"\n'
    (tmp_path / "logs" / "ts_log.log").write_text(content, encoding="utf-8")
    server = Server(1, 0.0, {}, Ports(), tmp_path, tmp_path)
    first, *others = server.log("ts_log.log").splitlines()
    assert first == f"2026-01-01T00:00:00,000 [INFO] {text}"
    assert others == ["not JSON", '{"time"']


@pytest.mark.parametrize("is_json", [False, True])
def test_the_first_line_of_an_exception_is_read(tmp_path: Path, is_json: bool) -> None:
    (tmp_path / "logs").mkdir()
    exception = "java.io.IOException: no file\n\tat org.pytorch.serve.X"
    line = {"time": "now", "level": "WARN", "thread": "main", "logger": "X", "message": "Failed"}
    if is_json:
        content = json.dumps(line | {"exception": exception}, separators=(",", ":"))
    else:
        content = "now [WARN] main X - Failed\n  " + exception.replace("\n", "\\n")
    (tmp_path / "logs" / "ts_log.log").write_text(f"{content}\n", encoding="utf-8")
    server = Server(1, 0.0, {}, Ports(), tmp_path, tmp_path)
    assert server.log("ts_log.log").splitlines() == [
        "now [WARN] main X - Failed",
        "java.io.IOException: no file",
    ]
