"""Files that the documentation and comments name are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATH = re.compile(
    r"(?<![\w./-])(?:handlers|hosts|scripts|demo_models|benchmarks|tests|deploy|docs|model_configs)"
    r"/[\w./-]*\w"
)
# Files that a reader writes: those of walk-throughs, and YAML files of examples.
TITLE = re.compile(r'title="([^"]+)"')
EXAMPLES = {f"model_configs/{name}.yaml" for name in ("NAME", "qa", "sentiment")}
LISTED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
FILES = LISTED.stdout.splitlines()
KNOWN = {*FILES, *(str(folder) for file in FILES for folder in Path(file).parents)}
READ = [
    file
    for file in FILES
    if file in ("CONTRIBUTING.md", "README.md", "Makefile", "pyproject.toml")
    or (file.startswith("docs/") and file.endswith(".md"))
    or (file.startswith(("handlers/", "hosts/", "scripts/", "demo_models/")) and file[-3:] == ".py")
]


def test_every_path_exists() -> None:
    missing: dict[str, set[str]] = {}
    for file in READ:
        text = (ROOT / file).read_text(encoding="utf-8")
        found = set(PATH.findall(text)) - KNOWN - EXAMPLES - set(TITLE.findall(text))
        missing |= {file: found} if found else {}
    assert not missing
