"""The generated tables of the documentation: keys, parameters and formats.

A page marks where a table belongs, and the table stands between the marks, so that the page also
reads well without a build:

    <!-- generated: parameters question_answering -->
    <!-- /generated -->
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from handlers import formats, tasks
from handlers.config.choices import modes, save_modes
from handlers.config.handler_section import Compile, HandlerSection, Tokenizer
from handlers.config.torchserve_section import Torchrun, TorchServeSection
from handlers.formats.base import BaseFormat
from handlers.schemas.explanation_parameters import ExplanationParameters
from handlers.schemas.json_schema import parameter_schemas
from handlers.schemas.parameters import Parameters
from handlers.schemas.pipeline_names import ANY
from scripts.kit.places import ROOT

PAGES = ROOT / "docs"
BLOCK = re.compile(
    r"(?P<open><!-- generated: (?P<name>.+?) -->\n).*?(?P<close><!-- /generated -->)", re.DOTALL
)
NOTHING = "–"
SECTIONS: dict[str, type[BaseModel]] = {
    "torchserve": TorchServeSection,
    "handler": HandlerSection,
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

Row = tuple[str, ...]


def write(folder: Path = PAGES) -> list[Path]:
    """Bring the generated tables of every page up to date; returns the pages that changed."""
    return [page for page in sorted(folder.rglob("*.md")) if _update(page)]


def render(text: str) -> str:
    """Return a page with its generated tables as they should be now."""
    return BLOCK.sub(lambda found: found["open"] + table(found["name"]) + found["close"], text)


def table(name: str) -> str:
    """Return the generated table of a name such as `config handler` or `parameters <mode>`."""
    kind, _, argument = name.partition(" ")
    tables: dict[str, Callable[[str], str]] = {
        "config": lambda section: keys_of(SECTIONS[section]),
        "parameters": lambda mode: parameters_of(tasks.get(mode).parameters),
        "accepted": lambda mode: accepted_by(tasks.get(mode).parameters),
        "explanation-parameters": lambda _: parameters_of(ExplanationParameters),
        "formats": lambda _: format_traits(),
    }
    return tables[kind](argument)


def keys_of(section: type[BaseModel]) -> str:
    """Return the table of a section's keys, from its fields' descriptions."""
    words = {"mode": modes(), "save_mode": save_modes()} if section is HandlerSection else {}
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


def parameters_of(kind: type[Parameters]) -> str:
    """Return the table of what a request may set."""
    rows = [
        (
            f"`{name}`",
            type_of(schema),
            _default(schema),
            schema.get("description") or DESCRIPTIONS[kind.__name__][name],
        )
        for name, schema in parameter_schemas(kind, {}).items()
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
        "yes" if declared.generates else "no",
        _alternatives(declared.dtypes),
        _alternatives(declared.quantizations) or NOTHING,
        "one, of `batch_size` and `max_length`" if declared.fixed_shape else "any",
        _alternatives(declared.packages) or NOTHING,
    )


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


def _table(head: Row, rows: Sequence[Row]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# What a request may set, by parameters class and name.
DESCRIPTIONS: dict[str, dict[str, str]] = {
    "ClassificationParameters": {
        "top_k": "Number of labels, best first. `null` returns all of them.",
        "function_to_apply": "Turns logits into scores. Without it, `softmax`; `sigmoid` for "
        "one label and for multi-label models; `none` for regression.",
        "max_length": "Maximum tokens, special tokens included. A longer text is cut.",
    },
    "TokenParameters": {
        "aggregation_strategy": "`none` returns tokens; the others join tokens to entities, as "
        "in the transformers pipeline.",
        "ignore_labels": "Labels that are left out.",
        "stride": "Reads a long text in windows that overlap by this number of tokens. Needs an "
        "`aggregation_strategy` other than `none`.",
        "special_tokens": "Returns every token of the row, special tokens included.",
    },
    "AnswerParameters": {
        "top_k": "Number of answers, best first. Alias: `topk`.",
        "max_answer_len": "Maximum tokens of an answer.",
        "max_question_len": "Maximum tokens of the question. A longer question is cut.",
        "max_seq_len": "Tokens of one window: question, context and special tokens. Without it, "
        "384.",
        "doc_stride": "Overlap of two windows in tokens. Without it, half a window, 128 at most.",
        "handle_impossible_answer": "Adds the empty answer as a candidate.",
        "align_to_words": "Extends an answer to whole words.",
    },
    "GenerationParameters": {
        "max_new_tokens": "Maximum new tokens. Without it, the YAML's `max_length`, then the "
        "checkpoint's, then 50.",
        "max_length": "Maximum tokens of prompt and new text together. Only without "
        "`max_new_tokens`.",
        "min_new_tokens": "Minimum new tokens.",
        "do_sample": "Samples tokens. `false` takes the most likely one.",
        "temperature": "Temperature of sampling.",
        "top_k": "Samples from this number of most likely tokens.",
        "top_p": "Samples from the most likely tokens with this total probability.",
        "min_p": "Samples from tokens with this share of the best token's probability.",
        "typical_p": "Locally typical sampling.",
        "num_beams": "Beams of a beam search.",
        "num_return_sequences": "Number of texts. Needs `do_sample` or as many beams.",
        "repetition_penalty": "Penalty for tokens that occurred before; 1 is none.",
        "no_repeat_ngram_size": "Length of n-grams that may occur once only.",
        "length_penalty": "Exponent of the length in beam search.",
        "early_stopping": "Ends a beam search at the first complete candidates.",
        "truncate": "Cuts the prompt to this number of tokens. 0 keeps all.",
        "stop": "Text, or list of texts, before which the output ends.",
        "seed": "Makes sampling repeatable.",
        "return_full_text": "Returns the prompt before the new text.",
        "details": "Adds `finish_reason`, `generated_tokens`, `input_length` and `seed`.",
    },
    "ExplanationParameters": {
        "method": "Attribution method, see [Methods](#methods). Without it, the default of the "
        "mode.",
        "target": "What is explained, see [Targets](#targets). Without it, the prediction.",
        "granularity": "Unit of the attributions.",
        "n_steps": "Steps of `layer_integrated_gradients`. Without it, as many as convergence "
        "needs.",
        "n_samples": "Samples of `shapley_value_sampling` and `kernel_shap`.",
    },
}
