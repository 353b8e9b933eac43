"""Write the generated tables in docs/: tasks, the YAML's keys, request parameters, formats.

A page marks where a table belongs, and the table stands between the marks, so that the page also
reads well without a build:

    <!-- generated: parameters question_answering -->
    <!-- /generated -->
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel
from rich.console import Console

from hf_serve.handlers import formats, tasks
from hf_serve.handlers.config.documents import read_json
from hf_serve.handlers.config.handler_section import (
    AUTO,
    CHECKPOINT,
    Compile,
    HandlerSection,
    ModelKeys,
    Tokenizer,
    modes,
    save_modes,
)
from hf_serve.handlers.config.model_config import ModelConfig, Torchrun, TorchServeSection
from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.formats.base import BaseFormat
from hf_serve.handlers.generation.parameters import GenerationParameters, specs_of
from hf_serve.handlers.protocols import text_generation_inference
from hf_serve.handlers.protocols.base import EMPTY, Key, KeyTable
from hf_serve.handlers.registry import EXPLANATION_TARGETS
from hf_serve.handlers.types.parameters import (
    ANY,
    ExplanationParameters,
    ImageExplanationParameters,
    Parameters,
    TextExplanationParameters,
    parameter_schemas,
)
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.hub.catalogue import read_catalogue
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.openapi import all_routes
from hf_serve.scripts.paths import MODEL_CONFIGS

PAGES = ROOT / "docs"
CATALOGUE_FIGURES = ROOT / "benchmarks" / "results" / "catalogue.json"
BLOCK = re.compile(
    r"(?P<open><!-- generated: (?P<name>.+?) -->\n).*?(?P<close><!-- /generated -->)", re.DOTALL
)
NOTHING = "–"
SECTIONS: dict[str, type[BaseModel]] = {
    "torchserve": TorchServeSection,
    # The keys of `handler:` by kind of model, such as `text` for `TextKeys`.
    **{each.__name__.removesuffix("Keys").lower(): each for each in HandlerSection.__bases__},
    "tokenizer": Tokenizer,
    "torchrun": Torchrun,
    "compile": Compile,
}
BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
}
# Parameters of explanations that depend on what the rows of a mode are.
EXPLANATIONS: dict[str, type[ExplanationParameters]] = {
    "texts": TextExplanationParameters,
    "images": ImageExplanationParameters,
}
# The keys of each protocol's routes.
KEY_TABLES: Mapping[str, KeyTable] = {
    **{each.name: each.keys for each in all_routes()},
    "generate parameters": text_generation_inference.PARAMETERS,
}

Row = tuple[str, ...]

out = Console(highlight=False, soft_wrap=True)


@plain_errors()
def main(
    folder: Annotated[Path, typer.Option(help="Where the pages are.")] = PAGES,
) -> None:
    """Update the tables between `<!-- generated: … -->` marks and print the pages that changed."""
    for page in write(folder):
        out.print(str(page), markup=False)


def write(folder: Path = PAGES) -> list[Path]:
    """Bring the generated tables of every page up to date; returns the pages that changed."""
    return [page for page in sorted(folder.rglob("*.md")) if _update(page)]


def render(text: str) -> str:
    """Return a page with its generated tables as they should be now."""
    return BLOCK.sub(lambda found: found["open"] + table(found["name"]) + found["close"], text)


def table(name: str) -> str:
    """Return the generated table of a name such as `config text` or `parameters <mode>`."""
    kind, _, argument = name.partition(" ")
    tables: dict[str, Callable[[str], str]] = {
        "config": lambda section: keys_of(SECTIONS[section]),
        "tasks": lambda _: all_tasks(),
        "catalogue": lambda _: all_catalogued(),
        "catalogue-figures": lambda _: figures_of_catalogue(),
        "task": task_of,
        "parameters": lambda mode: parameters_of(tasks.get(mode).parameters),
        "accepted": lambda mode: accepted_by(tasks.get(mode).parameters),
        "explanation-parameters": explanation_parameters,
        "formats": lambda _: format_traits(),
        "fastest-formats": lambda _: fastest_formats(),
        "sampling-parameters": lambda _: sampling_parameters(),
        "keys": lambda route: keys_of_route(KEY_TABLES[route]),
    }
    return tables[kind](argument)


def keys_of(section: type[BaseModel]) -> str:
    """Return the table of a section's keys, from its fields' descriptions."""
    words = {"mode": modes(), "save_mode": [AUTO, *save_modes()]} if section is ModelKeys else {}
    schemas = section.model_json_schema()
    rows = [
        (
            f"`{key}`",
            _alternatives(words[key]) if key in words else type_of(schema),
            "required" if key in schemas.get("required", ()) else _default(schema),
            schema["description"],
        )
        for key, schema in schemas["properties"].items()
    ]
    return _table(("Key", "Type", "Default", "Description"), rows)


def keys_of_route(route: KeyTable) -> str:
    """Return the table of what a route does with the keys that servers define for it."""
    refused = (
        _with_neutral(name, key) for name, key in route.keys.items() if key.treatment == "refused"
    )
    rows = [
        ("Honoured", ", ".join(f"`{name}`" for name in route.named("honoured"))),
        ("Without effect", ", ".join(f"`{name}`" for name in route.named("without effect"))),
        ("Refused", ", ".join(refused)),
    ]
    return _table(("", "Keys"), [row for row in rows if row[1]])


def _with_neutral(name: str, key: Key) -> str:
    if key.refuses_empty:
        return f"`{name}` (`{{}}`, too)"
    values = [value for value in key.neutral if value not in EMPTY]
    return f"`{name}` (but {_alternatives(values)})" if values else f"`{name}`"


def all_tasks() -> str:
    """Return the table of all tasks, with their pages."""
    rows = [
        (f"[{_title(mode)}](tasks/{mode}.md)", f"`{mode}`", _yes(mode in EXPLANATION_TARGETS))
        for mode in modes()
    ]
    return _table(("Task", "`mode`", "Explanations"), rows)


def all_catalogued() -> str:
    """Return the table of the catalogue."""
    rows = [
        (
            f"`{name}`",
            ", ".join(f"`{model}`" for model in entry.models),
            f"[`{entry.mode}`](tasks/{entry.mode}.md)" if entry.mode else NOTHING,
            f"not served: {entry.refused}" if entry.refused else entry.needs,
            entry.reference,
            ", ".join(f"[{file}]({page})" for file, page in entry.verified.items()) or NOTHING,
        )
        for name, entry in read_catalogue().items()
    ]
    return _table(("Name", "Models", "Mode", "Needs", "Reference", "Verified"), rows)


def figures_of_catalogue(path: Path = CATALOGUE_FIGURES) -> str:
    """Return the table of what was measured of the catalogue, while nothing else ran."""
    document = read_json(path) if path.is_file() else {"entries": {}}
    rows = [
        (f"`{name}`", f"{measured['parameters'] / 1e6:.0f}", form, *_figures(measured[form]))
        for name, measured in document["entries"].items()
        if not measured["busy"]
        for form in ("float32", "int8")
        if "rows_per_second" in measured.get(form, {})
    ]
    if not rows:
        return "No entry was measured on a machine that was idle.\n"
    names = (
        "Name",
        "Million parameters",
        "Format",
        "Rows/s",
        "Tokens/s",
        "Private MB",
        "Shared MB",
    )
    facts = document["machine"]
    return f"{facts['cores']} cores of {facts['processor']}:\n\n{_table(names, rows)}"


def _figures(measured: Mapping[str, Any]) -> tuple[str, ...]:
    tokens = measured["tokens_per_second"]
    return (
        f"{measured['rows_per_second']:.3g}",
        f"{tokens:.3g}" if tokens else NOTHING,
        f"{measured['private'] / 1e6:.0f}",
        f"{measured['shared'] / 1e6:.0f}",
    )


def task_of(mode: str) -> str:
    """Return the YAML of a mode, and what its models can do."""
    shipped = ModelConfig.read(MODEL_CONFIGS / f"{mode}.yaml").handler
    model = shipped.model_name
    revision = {"revision": shipped.revision} if shipped.revision else {}
    handler = {"mode": mode, "model_name": model, **revision, "save_mode": AUTO, "dtype": "auto"}
    text = yaml.safe_dump({"handler": handler}, sort_keys=False)
    explained = "[yes](../explanations.md)" if mode in EXPLANATION_TARGETS else "no"
    rows = [
        ("Serve it", f"`hf-serve run {model} --mode {mode}`"),
        ("With settings", f"[`model_configs/{mode}.yaml`](../../model_configs/{mode}.yaml)"),
        ("[Formats](../formats.md)", _formats_of(mode)),
        ("Explanations", explained),
        ("Streams", _yes(tasks.get(mode).description.generation.texts)),
    ]
    return f"```yaml\n{text}```\n\n{_table(('', ''), rows)}"


def _formats_of(mode: str) -> str:
    fastest = tasks.get(mode).description.exports.fastest_formats.get("cpu", CHECKPOINT)
    names = [name for name in save_modes() if _has_format(mode, name)]
    return f"{_alternatives(names)}; on CPUs `auto` is `{fastest}`"


def _has_format(mode: str, save_mode: str) -> bool:
    handler: dict[str, Any] = {"mode": mode, "model_name": "org/name", "save_mode": save_mode}
    if formats.get(save_mode).capabilities.has_fixed_shape:
        handler |= {"batch_size": 1, "max_length": 128}
    try:
        formats.check_config(ModelConfig.parse({"handler": handler}))
    except WrongConfig:
        return False
    return True


def _title(mode: str) -> str:
    page = PAGES / "tasks" / f"{mode}.md"
    if not page.is_file():
        return mode
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def explanation_parameters(rows: str) -> str:
    """Return the table of the parameters of all explanations, or of a kind of rows."""
    if not rows:
        return parameters_of(ExplanationParameters)
    return parameters_of(EXPLANATIONS[rows], without=ExplanationParameters.model_fields)


def parameters_of(kind: type[Parameters], without: Collection[str] = ()) -> str:
    """Return the table of what a request may set, except for some parameters."""
    rows = [
        (
            f"`{name}`",
            type_of(schema),
            _default(schema),
            " ".join((kind.model_fields[name].description or "").split()),
        )
        for name, schema in parameter_schemas(kind, {}).items()
        if name not in without
    ]
    return _table(("Parameter", "Type", "Default", "Description"), rows)


def accepted_by(kind: type[Parameters]) -> str:
    """Return the sentences about pipeline arguments that are accepted besides the parameters."""
    names = kind.pipeline_names
    free = [f"`{name}`" for name, values in names.ignored.items() if values is ANY]
    bound = [
        f"`{name}` ({_alternatives(values)})"
        for name, values in names.ignored.items()
        if values is not ANY
    ]
    switched = [
        f"`{name}: true` sets `{json.dumps(dict(meant))}`."
        for name, meant in names.switches.items()
    ]
    ignored = f"Accepted without effect: {', '.join(sorted(free) + sorted(bound))}."
    return "\n".join([ignored, *switched]) + "\n"


def format_traits() -> str:
    """Return the table of what each format declares."""
    head = ("`save_mode`", "Generation", "`dtype`", "`quantization`", "Shapes", "Packages")
    rows = [(f"`{name}`", *_traits(formats.get(name))) for name in save_modes()]
    return _table(head, rows)


def _traits(declared: BaseFormat) -> Row:
    return (
        "yes" if declared.capabilities.generates else "no",
        _alternatives(declared.capabilities.dtypes),
        _alternatives(declared.capabilities.quantizations) or NOTHING,
        "one, of `batch_size` and `max_length`" if declared.capabilities.has_fixed_shape else "any",
        _alternatives(declared.packages) or NOTHING,
    )


def fastest_formats() -> str:
    """Return the table of what `save_mode: auto` is, by mode and device."""
    declared = {mode: tasks.get(mode).description.exports.fastest_formats for mode in modes()}
    devices = sorted({"cuda"}.union(*declared.values()))
    rows = [
        (f"`{mode}`", *(f"`{fastest.get(device, CHECKPOINT)}`" for device in devices))
        for mode, fastest in declared.items()
        if fastest
    ]
    others = ("others", *(f"`{CHECKPOINT}`" for _ in devices))
    return _table(("`mode`", *(f"on `{device}`" for device in devices)), [*rows, others])


def type_of(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema as words, `null` left out."""
    if "$ref" in schema:
        return "section"
    if "anyOf" in schema:
        kinds = (type_of(each) for each in schema["anyOf"])
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind)) or "any"
    if "enum" in schema:
        return _alternatives(each for each in schema["enum"] if each is not None)
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "any")
    if kind == "null":
        return ""
    if kind == "array":
        return f"list of {schema['items']['type']}s"
    if kind == "object":
        return "mapping"
    bounds = (text.format(_number(schema[name])) for name, text in BOUNDS.items() if name in schema)
    return " ".join([kind, ", ".join(bounds)]).strip()


def _update(page: Path) -> bool:
    text = page.read_text(encoding="utf-8")
    rendered = render(text)
    if rendered != text:
        page.write_text(rendered, encoding="utf-8")
    return rendered != text


def _default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    if default in (None, [], {}) or isinstance(default, dict):
        return NOTHING
    return f"`{default}`" if isinstance(default, str) else f"`{json.dumps(default)}`"


def _number(value: float) -> str:
    """Return a bound as people write it: 2³¹ as a power, 0.01 as it is."""
    whole = int(value)
    power = whole.bit_length() - 1
    return f"2^{power}^" if whole > 10**6 and whole == 2**power else f"{value:g}"


def _alternatives(words: Iterable[Any]) -> str:
    return ", ".join(f"`{word if isinstance(word, str) else json.dumps(word)}`" for word in words)


def sampling_parameters() -> str:
    """Return the table of the engines that do each parameter which chooses tokens."""
    rows = [
        (
            f"`{name}`",
            spec.genai.value if spec.genai else NOTHING,
            NOTHING if spec.vllm is None else "yes",
        )
        for name, spec in specs_of(GenerationParameters).items()
        if spec.transformers
    ]
    return _table(("Parameter", "openvino-genai", "vLLM"), rows)


def _table(head: Row, rows: Sequence[Row]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


run = partial(typer.run, main)

if __name__ == "__main__":
    run()
