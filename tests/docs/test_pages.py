"""The pages are correct: tables, examples, links and messages."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import crossplane
import pytest
import torch
import yaml

from benchmarks.overview import PLOT, plot
from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import HandlerSection, modes
from hf_serve.handlers.config.model_config import ModelConfig, TorchServeSection
from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.telemetry.metrics import COUNTERS, Meter
from hf_serve.handlers.types.parameters import ExplanationParameters
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.write_docs import render
from tests.docs.pages import DOCS, PAGES, Block, blocks, calls
from tests.handlers.generation.test_chat import TEMPLATE
from tests.serving import Served

LINK = re.compile(r"(?<!`)\]\((?!https?://)([^)\s#]*)(?:#([^)\s]+))?\)")
OTHERS = re.compile(r"<!-- messages of others -->.*?<!-- /messages of others -->", re.DOTALL)
STATUS = re.compile(r"Status (\d{3})")
CURLS = [block for block in blocks("bash") if block.text.startswith("curl ")]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute with one thread, which is faster for tiny models."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_generated_tables_are_current() -> None:
    texts = {named(page): page.read_text(encoding="utf-8") for page in PAGES}
    old = [page for page, text in texts.items() if render(text) != text]
    assert not old, "run python scripts/write_docs.py"


def test_the_plot_is_current() -> None:
    assert PLOT.read_text(encoding="utf-8") == plot(), "run python benchmarks/overview.py"


def test_every_key_is_explained() -> None:
    page = read("configuration.md")
    for section in (HandlerSection, TorchServeSection):
        for key, field in section.model_fields.items():
            assert field.description, key
            assert f"| `{key}` |" in page


def test_every_parameter_has_a_description() -> None:
    kinds = {tasks.get(mode).parameters for mode in modes()} | {ExplanationParameters}
    assert not [
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, field in kind.model_fields.items()
        if not field.description
    ]


def test_every_mode_has_a_page_with_an_example() -> None:
    shown = {call.mode for block in CURLS for call in calls(block)}
    for mode in modes():
        page = read(f"tasks/{mode}.md")
        assert f"`mode: {mode}`" in page
        assert f"<!-- generated: task {mode} -->" in page
        assert f"<!-- generated: parameters {mode} -->" in page
    assert shown == set(modes())


def test_every_page_of_a_task_is_in_the_site() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [mode for mode in modes() if f"tasks/{mode}.md" not in listed]
    assert not missing


# A block titled with a path is a file of a walk-through; tests/test_walkthrough.py runs it.
CONFIGS = [block for block in blocks("yaml") if "/" not in block.title]


def test_yaml_files_are_valid() -> None:
    assert not broken(CONFIGS, lambda text: ModelConfig.parse(yaml.safe_load(text)))


def test_json_is_valid() -> None:
    assert not broken(blocks("json"), json.loads)


def test_python_compiles() -> None:
    assert not broken(blocks("python"), lambda text: compile(text, "block", "exec"))


# crossplane takes the shares of split_clients for directives.
SHARES = re.compile(r"(split_clients [^{]*\{)(?:\s+(?:\d+%|\*) +[\d.]+;)+\s+\}")


@pytest.mark.parametrize("block", blocks("nginx"), ids=str)
def test_nginx_reads_the_settings_of_a_proxy(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text(SHARES.sub(r"\1}", block.text), encoding="utf-8")
    parsed = crossplane.parse(str(path), strict=True, check_ctx=True, check_args=True)
    assert (parsed["status"], parsed["errors"]) == ("ok", [])


def broken(found: list[Block], read: Callable[[str], object]) -> list[str]:
    """Describe the blocks whose text cannot be read."""
    assert found
    errors = []
    for block in found:
        try:
            read(block.text)
        except (ValueError, SyntaxError, WrongConfig, yaml.YAMLError) as error:
            errors.append(f"{block}: {error}")
    return errors


@pytest.fixture
def models(served: Callable[..., Served], monkeypatch: Any) -> Callable[..., Served]:
    """The models of the examples, of which the one that generates texts reads chats."""
    tokenizer = served("text_generation").engine.task.checkpoint.tokenizer
    monkeypatch.setattr(tokenizer, "chat_template", TEMPLATE)
    return served


@pytest.mark.server
def test_curl_commands_are_answered(models: Callable[..., Served]) -> None:
    wrong, refused = [], {block.after: int(found[1]) for block, found in shown_statuses()}
    for block in CURLS:
        for call in calls(block):
            dispatcher = Dispatcher(models(call.mode).engine, call.mode)
            (answer,) = dispatcher.dispatch([call.http_request], Meter())
            if answer.status != refused.get(block, 200):
                wrong.append(f"{block}: {answer.status} {answer.body!r}")
    assert not wrong


def shown_statuses() -> Iterator[tuple[Block, re.Match[str]]]:
    """Yield the answers to requests that are refused."""
    for block in blocks("json"):
        if found := STATUS.fullmatch(block.title):
            yield block, found


def test_answers_have_the_keys_that_are_shown(models: Callable[..., Served]) -> None:
    wrong = []
    answers = [block for block in blocks("json") if block.title == "Answer"]
    assert answers
    for block in answers:
        assert block.after, f"{block} follows no request"
        (call,) = calls(block.after)
        ((status, answer),) = models(call.mode).post(call.http_request)
        if status != 200 or keys_of(answer) != keys_of(json.loads(block.text)):
            wrong.append(f"{block}: {status}, keys {keys_of(answer)}")
    assert not wrong


def test_the_engine_example_runs(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "artifacts" / "models"
    models.mkdir(parents=True)
    (models / "question_answering").symlink_to(checkpoint("question_answering"))
    monkeypatch.chdir(tmp_path)
    (example,) = (block for block in blocks("python") if block.page.name == "engine.md")
    exec(compile(example.text, str(example), "exec"), {})  # noqa: S102


def test_shell_commands_name_what_exists() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    missing = []
    for block in blocks("bash"):
        subprocess.run(["bash", "-n", "-c", block.text], check=True)
        files = re.findall(r"\b((?:scripts|benchmarks)/\w+\.py)", block.text)
        files += re.findall(r"\b(requirements(?:/[\w-]+)?\.txt|config\.properties)", block.text)
        missing += [f"{block}: {name}" for name in files if not (ROOT / name).is_file()]
        made = re.findall(r"^make ([\w-]+)", block.text, re.MULTILINE)
        missing += [f"{block}: make {target}" for target in made if target not in targets]
    assert not missing


def test_every_link_points_to_a_file_and_a_heading() -> None:
    wrong = []
    for page in PAGES:
        for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            place = (page.parent / target).resolve() if target else page
            if not place.exists() or (anchor and anchor not in anchors(place)):
                wrong.append(f"{named(page)}: {target}#{anchor}")
    assert not wrong


def test_every_message_is_one_of_the_code() -> None:
    known = "\n".join(messages())
    tables = OTHERS.sub("", read("troubleshooting.md").split("## Clients")[0])
    shown = [
        message
        for cell in re.findall(r"^\| (`.*?`) \|", tables, re.MULTILINE)
        for message in re.findall(r"`(.+?)`", cell)
    ]
    assert len(shown) >= 25
    assert not [message for message in shown if not all(part in known for part in fixed(message))]


def test_every_metric_of_the_handler_is_listed() -> None:
    page = read("metrics.md")
    stages = ("read", "parse", "encode", "forward", "decode", "explain", "write")
    assert all(f"`hf_{name}_total`" in page for name in COUNTERS)
    assert all(f"`hf_{stage}_time`" in page for stage in stages)


def test_every_package_is_described() -> None:
    handlers = ROOT / "handlers"
    names = {path.name for path in handlers.iterdir() if not path.name.startswith("_")}
    listed = re.findall(r"^\| \[`handlers/([\w.]+)`\]", read("architecture.md"), re.MULTILINE)
    assert set(listed) == names
    assert len(listed) == len(names)


def named(page: Path) -> str:
    """Return the path of a page in the repository."""
    return str(page.relative_to(ROOT))


def keys_of(value: Any) -> Any:
    """Return the keys of an answer; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: keys_of(each) for key, each in value.items()}
    return [keys_of(value[0])] if isinstance(value, list) and value else None


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def fixed(message: str) -> list[str]:
    """Return the constant parts of a message."""
    parts = re.split(r"\s*…[:;]?\s*", message)
    return [re.sub(r"^(parameters: |The body )", "", part) for part in parts if part]


PACKAGES = ("handlers", "hosts", "scripts", "demo_models")


def messages() -> Iterator[str]:
    """Yield each string in the code, with … for inserted values."""
    for path in (each for name in PACKAGES for each in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
