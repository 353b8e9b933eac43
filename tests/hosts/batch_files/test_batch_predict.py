"""Files of rows are predicted: each row once, whatever ends on the way."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from typer.testing import CliRunner

from hf_serve.handlers.types.request import Request
from hf_serve.scripts import batch_predict
from hf_serve.scripts.installation import ROOT
from tests.hosts.host_python import RAY_PYTHON, run_script, run_successfully
from tests.sentences import Sentence
from tests.serving import Served, differences
from tests.waiting import wait_for

MODE, QUESTIONS = "sequence_classification", "question_answering"
TEXTS = [f"A film of {number} foxes." for number in range(25)]
ACTOR = "ray::MapWorker(MapBatches(Scorer))"
MANY, CHUNK = 20_000, 100


WITH_RAY = ("--actors", 1)


class Batch:
    """The command in a process, or with Ray in its environment."""

    def __init__(self, *, with_ray: bool) -> None:
        self.with_ray = with_ray
        self._python = RAY_PYTHON if with_ray else Path(sys.executable)
        self._options = WITH_RAY if with_ray else ()

    def run(self, *arguments: Any) -> subprocess.CompletedProcess[str]:
        return run_script(self._python, "batch_predict", *arguments, *self._options)

    def run_successfully(self, *arguments: Any) -> str:
        return run_successfully(self._python, "batch_predict", *arguments, *self._options)

    def command(self, *arguments: Any) -> list[str]:
        script = ROOT / "scripts" / "batch_predict.py"
        return list(map(str, [self._python, script, *arguments, *self._options]))


@pytest.fixture(
    params=[
        pytest.param(False, id="here", marks=pytest.mark.server),
        pytest.param(True, id="ray", marks=pytest.mark.ray),
    ]
)
def batch(request: pytest.FixtureRequest) -> Batch:
    return Batch(with_ray=request.param)


def refusal(*arguments: Any) -> str:
    """Return the sentence of the command that ends before a model is loaded."""
    app = typer.Typer()
    app.command()(batch_predict.main)
    told = CliRunner().invoke(app, list(map(str, arguments)))
    assert (told.exit_code, told.stdout) == (1, "")
    return told.stderr


@pytest.fixture(scope="module")
def archive(packed: Callable[..., Path]) -> Path:
    return packed("pretrained", MODE)


def write_lines(path: Path, rows: list[Any]) -> Path:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_results(folder: Path) -> list[Any]:
    files = sorted(folder.glob("part-*.jsonl"))
    lines = (line for file in files for line in file.read_bytes().split(b"\n") if line)
    return [json.loads(line) for line in lines]


def run_program(program: str, *arguments: Any) -> Any:
    """Run a program in the environment with Ray, and return the JSON that it prints."""
    command = [str(RAY_PYTHON), "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def predicted(model: Served, inputs: list[Any]) -> list[Any]:
    return model.engine.predict([Request(each, {}, is_batch_item=True) for each in inputs])


def test_rows_keep_their_columns_and_have_a_result_or_an_error(
    batch: Batch, archive: Path, served: Callable[..., Served], tmp_path: Path
) -> None:
    rows: list[Any] = [{"inputs": text, "id": number} for number, text in enumerate(TEXTS)]
    rows[3:3] = ['{"inputs": "broken', {"id": -1}, {"inputs": 7, "id": -2}, "[1]", ""]
    source = write_lines(tmp_path / "rows.jsonl", rows)
    printed = batch.run_successfully(archive, source, tmp_path / "out", "--chunk-rows", 7)
    assert printed.startswith("29 rows, 4 with an error, in ")
    found = read_results(tmp_path / "out")
    good = [row for row in found if row["error"] is None]
    bad = [row["error"]["message"] for row in found if row["error"]]
    assert [(row["id"], row["inputs"]) for row in good] == list(enumerate(TEXTS))
    assert not differences([row["result"] for row in good], predicted(served(MODE), TEXTS), 1e-3)
    assert found[3]["result"] is None
    assert bad == [
        "Row 4 of rows.jsonl is not JSON: Unterminated string starting at character 12.",
        "The row has no column inputs.",
        'inputs must be a text or {"text": …, "text_pair": …}, and is a number.',
        "Row 7 of rows.jsonl is no JSON object with a value for each column.",
    ]


# Rows that ended the process, or that came out changed.
ODD_ROWS = [
    '{"inputs": "A \\ud83d"}',
    '{"inputs": "A film.", "exact": 0.1234567890123456789, "large": 1e400, "deep": %s}',
    '{"inputs": "A film.", "result": 1, "id": 7}',
    '{"inputs": {"te\\ud83dxt": 1}}',
    '{"inputs": "A film.", "digits": %s}' % ("1" * 5000),
]


@pytest.mark.parametrize("output_format", ["jsonl", "parquet"])
def test_odd_rows_stay_what_they_are(
    batch: Batch, archive: Path, tmp_path: Path, output_format: str
) -> None:
    if output_format == "parquet" and not batch.with_ray and not find_spec("pyarrow"):
        pytest.skip("pyarrow is in the environment of Ray alone")
    deep = "[" * 300 + "]" * 300
    source = write_lines(tmp_path / "rows.jsonl", [row.replace("%s", deep) for row in ODD_ROWS])
    out = tmp_path / "out"
    options = ("--chunk-rows", 1, "--format", output_format)
    printed = batch.run_successfully(archive, source, out, *options)
    assert printed.startswith("5 rows, 4 with an error, in ")
    assert "(0 predicted now" in batch.run_successfully(archive, source, out, *options)
    if output_format == "jsonl":
        text = (out / "part-000001.jsonl").read_text("utf-8")
        assert text.startswith(ODD_ROWS[1].replace("%s", deep)[:-1])
        taken = read_results(out)[2]
        assert (taken["id"], taken["result"]) == (7, None)
        assert "has a column result" in taken["error"]["message"]


def test_files_of_a_folder_with_questions_in_cells_and_in_lines(
    batch: Batch, packed: Callable[..., Path], served: Callable[..., Served], tmp_path: Path
) -> None:
    questions = [
        {"question": "Who sings?", "context": f"Nina sings,\n{n} times."} for n in range(6)
    ]
    for name, part in (("b.csv", questions[3:]), ("a.csv", questions[:3])):
        with (tmp_path / name).open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["note", "asked"])
            writer.writerows([f'"{name}"', json.dumps(each)] for each in part)
    with (tmp_path / "b.csv").open("a", encoding="utf-8") as file:
        file.write("one cell\n")
    write_lines(tmp_path / "c.JSONL", [{"note": "c", "asked": questions[0]}])
    (tmp_path / "0.csv").touch()
    (tmp_path / ".hidden").mkdir()
    write_lines(tmp_path / ".hidden" / "d.csv", ["other"])
    out = tmp_path / "out"
    options = ("--column", "asked", "--chunk-rows", 2, "--parameters", '{"top_k": 1}')
    job = (packed("pretrained", QUESTIONS), tmp_path, out, *options)
    batch.run_successfully(*job)
    assert "(0 predicted now" in batch.run_successfully(*job)
    *rows, broken, last = read_results(out)
    rows.append(last)
    assert [row["note"] for row in rows] == ['"a.csv"'] * 3 + ['"b.csv"'] * 3 + ["c"]
    right = predicted(served(QUESTIONS), [*questions, questions[0]])
    assert not differences([row["result"] for row in rows], right, 1e-3)
    assert broken["error"]["message"] == "Row 4 of b.csv has 1 cells, and the header has 2."


@pytest.mark.ray
def test_parquet_stays_parquet(archive: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "rows.jsonl", [{"inputs": text} for text in TEXTS])
    program = (
        "import sys, json, pyarrow as pa, pyarrow.parquet as pq\n"
        "rows = [json.loads(line) for line in open(sys.argv[1])]\n"
        "table = pa.Table.from_pylist([{**row, 'day': [1, 2]} for row in rows])\n"
        "pq.write_table(table, sys.argv[2], row_group_size=10)\n"
    )
    parquet, out = tmp_path / "rows.parquet", tmp_path / "out"
    subprocess.run([RAY_PYTHON, "-c", program, source, parquet], check=True)
    Batch(with_ray=True).run_successfully(archive, parquet, out, "--chunk-rows", 8)
    program = (
        "import sys, json, pyarrow.dataset as ds\n"
        "data = ds.dataset(sys.argv[1], format='parquet', exclude_invalid_files=True)\n"
        "types = list(map(str, data.schema.types))\n"
        "print(json.dumps({'rows': data.to_table().to_pylist(), 'types': types}))\n"
    )
    found = run_program(program, out)
    assert [row["inputs"] for row in found["rows"]] == TEXTS
    assert found["types"][1] in ("list<element: int64>", "list<item: int64>")
    assert json.loads(found["rows"][0]["result"]).keys() == {"label", "score"}
    assert {row["error"] for row in found["rows"]} == {None}


@pytest.mark.ray
def test_parquet_without_a_readable_row_and_bytes_in_lines(tmp_path: Path) -> None:
    program = (
        "import sys, json, pyarrow as pa, pyarrow.parquet as pq\n"
        "from pathlib import Path\n"
        "from hf_serve.hosts.batch_files.results import Block, write_results\n"
        "folder, error = Path(sys.argv[1]), {'code': 400, 'type': 'T', 'message': 'A \\ud83d'}\n"
        "parquet, lines = folder / 'a.parquet', folder / 'a.jsonl'\n"
        "write_results(parquet, Block([None], rows=[b'{}']), [(None, error)])\n"
        "write_results(lines, Block([''], rows=pa.table({'b': [b'\\xff\\xfe']})), [(1.5, None)])\n"
        "found = {'parquet': pq.read_table(parquet).to_pylist(), 'lines': lines.read_text()}\n"
        "print(json.dumps(found))\n"
    )
    found = run_program(program, tmp_path)
    assert found["parquet"] == [
        {"result": None, "error": {"code": 400, "type": "T", "message": "A ?"}}
    ]
    assert found["lines"] == '{"b":"//4=","result":1.5,"error":null}\n'


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (
            "array.json",
            b'[{"inputs": "A film."}]',
            "is a JSON array; write an object on each line.",
        ),
        (
            "lacks.jsonl",
            b'{"id": 1}\n{"text": 1}',
            "has no column inputs; its columns are id, text. --column names another one.",
        ),
        (
            "open.csv",
            b'inputs,id\n"A film.,1\nAnother.,2\n',
            "has a quote in row 1 that is not closed.",
        ),
        ("twice.csv", b"inputs,a,a\n1,2,3\n", "has the column a twice; rename one of them."),
        (
            "utf16.csv",
            "inputs,a\n1,2\n".encode("utf-16"),
            "is not UTF-8; save it in this encoding.",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, archive: Path, name: str, content: bytes, problem: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert refusal(archive, path, tmp_path / "out") == f"{path} {problem}\n"


@pytest.mark.skipif(bool(find_spec("pyarrow")), reason="pyarrow is installed")
def test_parquet_without_pyarrow_is_refused_before_anything_is_predicted(
    archive: Path, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "rows.jsonl", [{"inputs": "A film."}])
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    for options in ((source, "--format", "parquet"), (tmp_path / "rows.parquet",)):
        path, *others = options
        told = refusal(archive, path, tmp_path / "out", *others)
        assert told.strip() == Sentence("pyarrow", "pip install pyarrow")
        assert not (tmp_path / "out").exists()


def test_run_again_it_does_what_is_missing_and_refuses_something_else(
    batch: Batch, archive: Path, packed: Callable[..., Path], tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "rows.jsonl", [{"inputs": text} for text in TEXTS])
    job = (archive, source, tmp_path / "out", "--chunk-rows", 10)
    batch.run_successfully(*job)
    first = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    removed = tmp_path / "out" / "part-000001.jsonl"
    removed.unlink()
    (tmp_path / "out" / f".draft-{'0' * 32}").write_text("half")
    assert "(10 predicted now" in batch.run_successfully(*job)
    assert "(0 predicted now" in batch.run_successfully(*job)
    second = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert {path for path in first if first[path] != second[path]} == {removed}
    assert [row["inputs"] for row in read_results(tmp_path / "out")] == TEXTS
    other = packed("pretrained", QUESTIONS)
    assert "has results of another archive" in refusal(other, *job[1:])
    write_lines(source, [{"inputs": "Another text."}])
    assert "has results of another input" in refusal(*job)


def test_what_is_wrong_is_said_before_a_model_is_loaded(archive: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "rows.jsonl", [{"text": "A film."}])
    empty = write_lines(tmp_path / "empty.jsonl", [])
    taken = write_lines(tmp_path / "taken.jsonl", [{"inputs": "A.", "result": 1}])
    out, file = tmp_path / "out", tmp_path / "file"
    file.write_text("x")
    assert "has no column inputs; its columns are text." in refusal(archive, source, out)
    assert refusal(archive, empty, out).endswith("empty.jsonl has no rows.\n")
    assert "has a column result" in refusal(archive, taken, out)
    assert refusal(archive, tmp_path / "none", out) == f"There is no {tmp_path / 'none'}.\n"
    assert "is no .mar" in refusal(source, source, out)
    column = ("--column", "text")
    assert "cannot be used for results: " in refusal(archive, source, file, *column)
    (tmp_path / ".draft-notes").touch()
    assert "has other files" in refusal(archive, source, tmp_path, *column)
    assert (tmp_path / ".draft-notes").exists()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "manifest.json").write_text("[1]")
    assert "has results of another archive" in refusal(archive, source, foreign, *column)


def test_an_archive_that_does_not_load_is_told_in_a_sentence(
    batch: Batch, archive: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.mar"
    with zipfile.ZipFile(archive) as whole, zipfile.ZipFile(damaged, "w") as written:
        for entry in whole.infolist():
            content = whole.read(entry)
            written.writestr(entry, b"{}" if entry.filename == "config.json" else content)
    source = write_lines(tmp_path / "rows.jsonl", [{"inputs": "A film."}])
    done = batch.run(damaged, source, tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("The archive is damaged or was changed: ")


def test_interrupted_it_says_how_to_go_on(batch: Batch, archive: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "rows.jsonl", [{"inputs": text} for text in TEXTS * 1200])
    out = tmp_path / "out"
    command = batch.command(archive, source, out, "--chunk-rows", 100)
    # Programs that a shell starts in the background ignore the signal, and so do theirs.
    running = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    wait_for_files(out, 2)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "Interrupted; the same command does what is missing.\n" in told


@contextmanager
def two_nodes() -> Iterator[dict[str, Any]]:
    """Two nodes of Ray, until the block ends."""
    process = subprocess.Popen(
        [RAY_PYTHON, "-m", "benchmarks.ray_nodes"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        yield json.loads(next(line for line in process.stdout if line.startswith("{")))
    finally:
        process.stdin.close()
        process.wait(120)


def actors_of(raylet: int) -> list[psutil.Process]:
    """Return the processes of a node that have loaded the archive or are loading it."""
    children = psutil.Process(raylet).children(recursive=True)
    return [each for each in children if "".join(each.cmdline()).startswith(ACTOR)]


@pytest.mark.ray
def test_every_row_is_there_once_though_an_actor_and_a_node_end(
    archive: Path, tmp_path: Path
) -> None:
    rows = [{"id": number, "inputs": f"Film {number}."} for number in range(MANY)]
    source, out = write_lines(tmp_path / "rows.jsonl", rows), tmp_path / "out"
    with two_nodes() as nodes:
        options = ["--address", nodes["address"], "--actors", "2", "--cpus", "1"]
        script = ROOT / "scripts" / "batch_predict.py"
        job = [archive, source, out, "--chunk-rows", CHUNK, *options]
        running = subprocess.Popen([RAY_PYTHON, script, *map(str, job)], stderr=subprocess.DEVNULL)
        own = os.getpid()
        raylets = [
            each.pid
            for each in psutil.Process(own).children(recursive=True)
            if each.name() == "raylet"
        ]
        wait_for_files(out, 10)
        first = next(actor for raylet in raylets for actor in actors_of(raylet))
        first.kill()
        wait_for_files(out, 40)
        ended = psutil.Process(nodes["raylet"])
        for each in [*ended.children(recursive=True), ended]:
            each.kill()
        before = len(list(out.glob("part-*")))
        assert running.wait(600) == 0
    assert before < MANY / CHUNK
    found = read_results(out)
    assert Counter(row["id"] for row in found) == Counter(range(MANY))
    assert {row["error"] for row in found} == {None}


def wait_for_files(folder: Path, count: int) -> None:
    wait_for(lambda: len(list(folder.glob("part-*"))) >= count, seconds=300)
