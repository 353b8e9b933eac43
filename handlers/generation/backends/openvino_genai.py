"""Text generation by openvino-genai's continuous batching, for `continuousBatching: true`.

openvino-genai runs in another process,
:mod:`hf_serve.handlers.generation.backends.openvino_genai_process`.
The checkpoint itself generates a prompt whose settings openvino-genai does not support, where the
archive has its weights. openvino-genai compiles grammars with xgrammar, which ignores a part of
some and runs without limits, so each grammar is checked and tried in advance.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import GenerationConfig

from ...batching.rows import RowOutcome
from ...compat.xgrammar import error_reason, ignored_part
from ...errors import (
    RequestError,
    RequestTooLarge,
    Unprocessable,
    UnsupportedByBackend,
    attempt,
    summarize,
)
from ...model import Model
from ...process.resources import available_cores
from ...process.threads import LazyLoad
from ...types.model_info import GenerationInfo
from ..batch_scheduler import BatchScheduler
from ..generator import Generator, Prompt, end_tokens
from ..grammar import CompileCache, TooBusyToCompile
from ..json_schemas import Schema, relaxed, schemas_in
from ..parameters import Beams, ParameterSpec
from ..text_grammar import TextGrammar
from .base import (
    BLOCK,
    MAX_SEED,
    SAMPLING_PARAMETERS,
    checkpoint_settings,
    effective_settings,
    unsupported_message,
)
from .process import BackendModel, BackendProcess, BackendProgram

PROGRAM = BackendProgram(
    "openvino-genai",
    Path(__file__).with_name("openvino_genai_process.py"),
    "openvino_model.xml",
    "leave continuousBatching out",
)
MODE = "continuousBatching with save_mode: openvino"
# Makes what a command has of the vectors of a prompt.
VectorsOf = Callable[[Prompt], Mapping[str, Any]]
# What a trial may take. On a busy machine the wall clock shows a multiple of the CPU time.
TRIAL = Path(__file__).with_name("openvino_genai_trial.py")
TRIAL_CPU_SECONDS, TRIAL_BYTES, TRIAL_TIMEOUT = 1, 4 * 2**30, 30.0
# The exit statuses of a trial that has a result.
REFUSED, TOO_LARGE = 3, 4
CACHED_GRAMMARS = 64
# Sets within sets, which xgrammar takes for characters.
NESTED_SET = re.compile(r"(?<!\\)(?:\\\\)*\[(?:\\.|[^\]\\])*?(?:\[|&&|--|~~)")
# A set that begins with the bracket that usually ends one.
BRACKET_SET = re.compile(r"(?<!\\)(?:\\\\)*\[\^?\]")
# A part of a pattern, whose characters need no escape in JSON.
PLAIN = re.compile(
    r"""[A-Za-z0-9 _:;,@/#%&=<>~!'`-]|[^\x00-\x7f]"""
    r"""|\\[dw.+*?(){}|^$/\[\]-]"""
    r"""|\[(?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9 _:;,@/#%&=<>~!'`.+*?(){}|$]"""
    r"""|[^\x00-\x7f]|\\[dw.+*?(){}|^$/\[\]-])+-?\]"""
    r"""|(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))|(?P<bar>\|)|[*+?]|\{\d+(?:,\d*)?\}"""
)
ANNOTATIONS = {
    *("$comment", "$defs", "$id", "$schema", "definitions", "deprecated", "description"),
    *("default", "examples", "readOnly", "title", "writeOnly", "type"),
}
# If a schema has one of these keywords, xgrammar ignores all others.
EXCLUSIVE = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
OF_STRING = {"minLength", "maxLength", "pattern", "format"}
RANGE = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
OF_TYPE: Mapping[str, set[str]] = {
    "string": OF_STRING,
    "integer": RANGE,
    "number": RANGE,
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties"},
}


class OpenVinoGenAiModel(BackendModel):
    """A model that openvino-genai runs.

    Args:
        directory: the folder with the model.
        properties: OpenVINO's properties.
        scheduler: values of openvino-genai's `SchedulerConfig`.
        max_running: the maximum number of running sequences.
        max_waiting: the maximum number of waiting sequences.
        min_running: the minimum number of running sequences, unless none runs.
        filler_tokens: the length of a sequence that is added to reach the minimum.
        generation_config: the checkpoint's generation config.
        load_graph: loads the model for forward passes, which explanations need.
        load_checkpoint: loads the checkpoint instead, for explanations with gradients and for
            settings that openvino-genai does not support; None where there are no weights.
        trials: tries grammars; None for a model that does not support grammars.
        hang_seconds: the time limit for a sign of life of the process.
        vectors_of: makes the vectors of a prompt, for a model whose prompts have images; None for
            one that reads tokens.
        width: the width of these vectors.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, Any],
        scheduler: Mapping[str, Any],
        max_running: int,
        max_waiting: int,
        min_running: int,
        filler_tokens: int,
        generation_config: GenerationConfig,
        load_graph: Callable[[], Model],
        load_checkpoint: Callable[[], Model] | None,
        trials: GrammarTrials | None,
        hang_seconds: float,
        vectors_of: VectorsOf | None = None,
        width: int | None = None,
    ) -> None:
        self._vectors_of = vectors_of
        self._trials = trials
        self._defaults = _checkpoint_settings(generation_config)
        self._ends = end_tokens(generation_config)
        self._cached_tokens = scheduler["num_kv_blocks"] * BLOCK
        arguments = {
            "directory": str(directory),
            "properties": dict(properties),
            "scheduler": dict(scheduler),
            "max_running": max_running,
            "min_running": min_running,
            "filler_tokens": filler_tokens,
            "width": width,
            "vocabulary": str(trials.folder) if trials else None,
        }
        process = BackendProcess(PROGRAM, arguments, hang_seconds=hang_seconds)
        self._fallback = load_checkpoint and LazyLoad(
            partial(_load_fallback, load_checkpoint, max_running, max_waiting, process)
        )
        super().__init__(
            process,
            max_running + max_waiting,
            self._fallback or LazyLoad(load_graph),
            has_gradients=self._fallback is not None,
        )

    def generate_prompts(
        self, generator: Generator, prompts: Sequence[Prompt], budget: int
    ) -> list[RowOutcome]:
        outcomes = super().generate_prompts(generator, prompts, budget)
        unsupported = [
            number
            for number, outcome in enumerate(outcomes)
            if isinstance(outcome, UnsupportedByBackend)
        ]
        if self._fallback is not None and unsupported:
            refused = [prompts[number] for number in unsupported]
            generated = _generate_by_fallback(self._fallback, generator, refused, budget)
            for number, outcome in zip(unsupported, generated, strict=True):
                outcomes[number] = outcome
        return outcomes

    @property
    def generation(self) -> GenerationInfo:
        unsupported = sorted(
            name
            for name, spec in SAMPLING_PARAMETERS.items()
            if not _supports_alone(spec) or (self._vectors_of and spec.reads_prompt)
        )
        if self._fallback is None:
            return GenerationInfo(PROGRAM.name, refused=unsupported)
        return GenerationInfo(PROGRAM.name, by_generate=unsupported)

    def _media(self, prompt: Prompt) -> Mapping[str, Any]:
        return self._vectors_of(prompt) if self._vectors_of else {}

    def _failure(self, reason: str) -> RequestError:
        return RequestTooLarge(
            f"The back end does not generate this text ({reason}: it has"
            f" {self._cached_tokens:,} tokens); send a shorter prompt, or ask for less."
        )

    def _constraints(self, grammar: TextGrammar) -> dict[str, Any]:
        if self._trials is None:
            grammar.compile()
            raise Unprocessable("Grammars are not supported by this model; leave them out.")
        if grammar.is_lark:
            grammar.compile()
            raise UnsupportedByBackend(
                f"A grammar in Lark is not supported by {MODE}; leave it out."
            )
        if grammar.thoughts and grammar.thoughts.budget is not None:
            raise UnsupportedByBackend(
                f"thinking_token_budget is not supported by {MODE}; leave it out."
            )
        # With the checkpoint's weights, the fallback keeps to all constraints.
        tag = self._trials.structural_tag(grammar, relaxes=self._fallback is None)
        return {"structural_tag": tag}

    def _settings(self, prompt: Prompt, number: int) -> dict[str, Any]:
        """Return the values of openvino-genai's `GenerationConfig` for a sequence of a prompt."""
        parameters = prompt.parameters
        given = effective_settings(self._defaults, parameters)
        searches = given.get("num_beams", 1) > 1
        settings: dict[str, Any] = {}
        for name, value in given.items():
            spec = SAMPLING_PARAMETERS[name]
            if value in (None, spec.neutral):
                continue
            if spec.genai is Beams.WITHOUT and searches:
                raise UnsupportedByBackend(
                    f"{name} is not supported with num_beams {given['num_beams']} by this model,"
                    " which has continuousBatching; leave one of them out."
                )
            # With vectors, openvino-genai does not know the tokens of a prompt.
            if not _supports(spec, searches) or (self._vectors_of and spec.reads_prompt):
                raise UnsupportedByBackend(unsupported_message(name, value, MODE))
            settings[name] = value
        if given.get("do_sample") and given.get("min_p") == 1:
            raise UnsupportedByBackend(f"min_p 1 is not supported by {MODE}; leave it out.")
        if prompt.grammar and "min_new_tokens" in settings:
            raise UnsupportedByBackend(
                "min_new_tokens is not supported with response_format, grammar or tools by this"
                " model, which has continuousBatching; leave one of them out."
            )
        # Without a seed, openvino-genai draws the same numbers for each sequence.
        seed = secrets.randbits(62) if parameters.seed is None else parameters.seed
        settings["rng_seed"] = (seed + number) % MAX_SEED
        if parameters.returns_logprobs:
            settings["logprobs"] = 1
        # Without an end token, openvino-genai would take the id -1.
        ends = sorted(parameters.end_tokens(self._ends))
        ending = {"stop_token_ids": ends} if ends else {"ignore_eos": True}
        return {**settings, "max_new_tokens": prompt.new_tokens, **ending}


def _load_fallback(
    load: Callable[[], Model], max_running: int, max_waiting: int, process: BackendProcess
) -> BatchScheduler:
    """Load the checkpoint; its sequences and the process's share one limit."""
    return BatchScheduler(load(), max_running, max_waiting, lambda: process.sequences)


def _generate_by_fallback(
    fallback: LazyLoad[BatchScheduler], generator: Generator, prompts: Sequence[Prompt], budget: int
) -> list[RowOutcome]:
    """Return what the checkpoint generates for prompts; the first request loads the checkpoint."""
    model = attempt(fallback.get, generator.deadline)
    if isinstance(model, RequestError):
        return [model] * len(prompts)
    return model.generate_prompts(replace(generator, model=model), prompts, budget)


def check_generation_config(generation_config: GenerationConfig) -> None:
    """Check that openvino-genai supports a checkpoint's generation config.

    Raises:
        WrongCheckpoint: it does not.
    """
    _checkpoint_settings(generation_config)


def _checkpoint_settings(generation_config: GenerationConfig) -> dict[str, Any]:
    return checkpoint_settings(generation_config, lambda spec: bool(spec.genai), MODE)


def _supports(spec: ParameterSpec, searches: bool) -> bool:
    return spec.genai in (Beams.EITHER, Beams.WITH if searches else Beams.WITHOUT)


def _supports_alone(spec: ParameterSpec) -> bool:
    """Return whether openvino-genai supports a parameter where no other one is set."""
    return _supports(spec, searches=spec.needs == "num_beams")


class GrammarTrials:
    """Tries grammars before openvino-genai compiles them, each once.

    Args:
        tokens: the bytes of each token.
        ends: ids of the tokens that end a text.
    """

    def __init__(self, tokens: Sequence[bytes], ends: frozenset[int]) -> None:
        self._folder = TemporaryDirectory(prefix="vocabulary-")
        self._end = min(ends)
        content = {"tokens": [each.hex() for each in tokens], "ends": sorted(ends)}
        command = [sys.executable, "-P", str(TRIAL), "write-vocabulary", str(self.folder)]
        subprocess.run(command, input=json.dumps(content).encode(), check=True)
        # Each trial is another process.
        self._ignored = CompileCache(
            self._try, size=CACHED_GRAMMARS, at_once=available_cores(), seconds=TRIAL_TIMEOUT
        )

    @property
    def folder(self) -> Path:
        """The folder of the vocabulary."""
        return Path(self._folder.name)

    def structural_tag(self, grammar: TextGrammar, *, relaxes: bool) -> str:
        """Return the structural tag of a grammar.

        Args:
            grammar: the grammar.
            relaxes: whether constraints that xgrammar does not support are removed from schemas
                that are not strict.

        Raises:
            BadRequest: the grammar has a mistake.
            Overloaded: other grammars take all the time that this one may wait.
            RequestTooLarge: it has too many characters.
            UnsupportedByBackend: xgrammar does not support it.
        """
        if relaxes:
            grammar = grammar.relaxed(_without_unsupported)
        for schema in grammar.schemas:
            check_values(schema)
        for schema in grammar.strict_schemas:
            check_schema(schema)
        for pattern in grammar.patterns:
            check_pattern(pattern)
        grammar = grammar.compilable()
        tag = json.dumps({"type": "structural_tag", "format": grammar.format})
        ignored = self._ignored.get(tag)
        if ignored and (grammar.strict_schemas or grammar.patterns):
            raise _unsupported_grammar(ignored)
        return tag

    def _try(self, tag: str) -> str:
        """Return the part of a grammar that xgrammar ignores.

        Raises:
            UnsupportedByBackend: xgrammar does not compile the grammar.
            Overloaded: the process had too little CPU time to tell.
        """
        limits = (str(TRIAL_CPU_SECONDS), str(TRIAL_BYTES))
        program = [sys.executable, "-P", str(TRIAL), "try"]
        command = [*program, str(self.folder), str(self._end), *limits]
        try:
            done = subprocess.run(
                command, input=tag.encode(), capture_output=True, timeout=TRIAL_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise TooBusyToCompile from None
        if done.returncode == REFUSED:
            raise _unsupported_grammar(error_reason(done.stdout.decode(errors="replace")))
        if done.returncode < 0 or done.returncode == TOO_LARGE:
            raise UnsupportedByBackend(
                "This model, which has continuousBatching, needs too much time or memory to compile"
                " the grammar; simplify it."
            )
        if done.returncode > 0:
            raise RuntimeError("the trial of grammars does not start")
        return ignored_part(done.stderr.decode(errors="replace"))


def check_values(schema: Schema) -> None:
    """Check that the values that xgrammar allows for a JSON schema are JSON within its bounds.

    Raises:
        UnsupportedByBackend: xgrammar allows others.
    """
    for _, each in schemas_in(schema):
        types = each.get("type")
        is_number = "number" in ([types] if isinstance(types, str) else _list(types))
        if bounds := sorted(each.keys() & RANGE) if is_number else []:
            raise UnsupportedByBackend(
                f"{bounds[0]} of numbers is not supported by this model, which has"
                " continuousBatching; leave it out, or use the type integer."
            )
        pattern = each.get("pattern")
        if isinstance(pattern, str) and not is_plain(pattern):
            raise UnsupportedByBackend(
                "A pattern in a JSON schema with quotes, backslashes or dots is not supported by"
                " this model, which has continuousBatching; simplify it."
            )


def _without_unsupported(schemas: Sequence[Schema]) -> list[Schema]:
    """Return schemas without the constraints that :func:`check_values` refuses."""
    return [relaxed(schema, _is_unsupported) for schema in schemas]


def _is_unsupported(constraint: Schema) -> bool:
    try:
        check_values(constraint)
    except UnsupportedByBackend:
        return True
    return False


def is_plain(pattern: str) -> bool:
    """Return whether xgrammar reads a pattern correctly, and its texts are JSON without escapes.

    xgrammar does not escape the texts of a pattern, and takes only `b` in `^a|b$` for a whole text.
    """
    rest, depth = pattern.removeprefix("^"), 0
    rest = rest.removesuffix("$") if not rest.endswith("\\$") else rest
    place = 0
    while place < len(rest):
        part = PLAIN.match(rest, place)
        if part is None or (part["bar"] and not depth):
            return False
        depth += bool(part["open"]) - bool(part["close"])
        place = part.end()
    return True


def check_schema(schema: Schema) -> None:
    """Check that xgrammar ignores no keyword of a JSON schema.

    Raises:
        UnsupportedByBackend: with one that it ignores.
    """
    for _, each in schemas_in(schema):
        if ignored := _ignored(each):
            raise UnsupportedByBackend(
                f"{ignored} in this JSON schema may be ignored by this model, which has"
                " continuousBatching; leave it out, or strict: true."
            )


def check_pattern(pattern: str) -> None:
    """Check that xgrammar reads a regular expression correctly.

    Raises:
        UnsupportedByBackend: it has a nested set of characters, or one that begins with `]`.
    """
    if NESTED_SET.search(pattern) or BRACKET_SET.search(pattern):
        raise UnsupportedByBackend(
            "Nested sets of characters in a regex are not supported by this model, which has"
            " continuousBatching; write the characters out, or escape the bracket."
        )


def _ignored(schema: Mapping[str, Any]) -> str | None:
    """Return a keyword that xgrammar ignores; None if there is none.

    The compiler reports what is no schema at all.
    """
    keywords = schema.keys() - ANNOTATIONS
    exclusive = next((name for name in EXCLUSIVE if name in keywords), None)
    if exclusive == "allOf" and len(_list(schema["allOf"])) > 1:
        return "allOf with several schemas"
    if exclusive:
        others = sorted(keywords - {exclusive})
        return f"{others[0]} with {exclusive}" if others else None
    unknown = sorted(keywords - _known(schema.get("type", ["object", "array"])))
    if unknown:
        return unknown[0]
    preferred = next((name for name in ("pattern", "format") if name in keywords), None)
    others = sorted(keywords & OF_STRING - {preferred}) if preferred else []
    if others:
        return f"{others[0]} with {preferred}"
    if NESTED_SET.search(str(schema.get("pattern", ""))):
        return "sets of characters within others in pattern"
    given = _dict(schema.get("properties"))
    missing = [name for name in _list(schema.get("required")) if str(name) not in given]
    return f"required {missing[0]}, which is not among the properties," if missing else None


def _known(types: Any) -> set[str]:
    names = [types] if isinstance(types, str) else _list(types)
    return {keyword for name in names for keyword in OF_TYPE.get(str(name), ())}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _unsupported_grammar(reason: str) -> UnsupportedByBackend:
    return UnsupportedByBackend(
        "This grammar is not supported by this model, which has continuousBatching"
        f" ({summarize(Exception(reason))}); simplify it."
    )
