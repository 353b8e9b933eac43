"""The operator's guide is followed literally, in a copy of the repository."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from hf_serve.demo_models import ensure
from tests.checkout import copy_repository, environment_of, use_free_ports
from tests.docs.pages import DOCS, blocks_of

BLOCKS = list(blocks_of(DOCS / "operations.md"))
MARK = "=== block"
SHELL = [block for block in BLOCKS if block.language == "bash"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The output of each shell block; all are run in order in one shell."""
    ensure(["sequence_classification"])
    copy = tmp_path_factory.mktemp("operations") / "kit"
    copy_repository(copy)
    (copy / "build").mkdir()
    ports = use_free_ports(copy)
    lines = [f"echo '{MARK}'\n{block.text}" for block in SHELL]
    script = "set -e\n" + "\n".join(lines)
    script = script.replace("127.0.0.1:8080", f"127.0.0.1:{ports.inference}")
    script = script.replace("127.0.0.1:8081", f"127.0.0.1:{ports.management}")
    environment = environment_of(tmp_path_factory.mktemp("t"), copy, "http://127.0.0.1:9")
    done = subprocess.run(
        ["bash", "-c", script], cwd=copy, env=environment, capture_output=True, text=True
    )
    stop = ["python", "scripts/serve.py", "stop"]
    subprocess.run(stop, cwd=copy, env=environment, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    yield done.stdout.split(f"{MARK}\n")[1:]


@pytest.mark.nightly
def test_each_step_says_what_it_did(outputs: list[str]) -> None:
    text = dict(zip((block.text.split("\n")[0] for block in SHELL), outputs, strict=True))
    found = {command: output for command, output in text.items() if output}
    assert "Packages: torch" in found["python scripts/doctor.py"]
    assert "problem" not in found["python scripts/doctor.py"]
    assert '"label"' in next(each for line, each in found.items() if "INFERENCE_KEY" in line)
    rollout = found["python scripts/rollout.py to sequence_classification 2.0 --dry-run"]
    assert rollout.startswith("would load sequence_classification@2.0.mar with 1 worker ")
    assert rollout.endswith("sequence_classification 2.0 is the default.\n")
    back = found["python scripts/rollout.py status sequence_classification"]
    assert "sequence_classification 2.0 (default)\n" in back
    assert back.endswith("sequence_classification 1.0 is the default.\n")
    assert found["python scripts/serve.py stop"] == "TorchServe has stopped.\n"
