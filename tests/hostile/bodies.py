"""Hostile requests, drawn with a seed: the same for the dispatcher in a test and for a real server.

Each begins with a body that a model answers. Its JSON gets a strange value in some place, its bytes
are damaged or compressed, its headers say something else; or it is replaced by a body like those
that ended a worker. Most are small; a few are as large as a server accepts.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from random import Random
from typing import Any

from tests.e2e.asking import Question
from tests.malformed import GOOD

JSON = "application/json"
LINES = "application/jsonlines"
CSV = "text/csv"
LENGTH = "Inference-Header-Content-Length"
LARGE = 0.02  # the share of large bodies

Make = Callable[[Random, str, int], tuple[bytes, dict[str, str]]]


def bodies(
    seed: int, count: int, modes: Mapping[str, str], max_size: int = 6_000_000
) -> Iterator[Question]:
    """Yield requests to the models of a server.

    Args:
        seed: the same seed yields the same requests.
        count: how many.
        modes: the mode of each model by its name.
        max_size: the bytes of the largest body.
    """
    for number in range(count):
        random = Random(f"{seed} {number}")
        name = random.choice(sorted(modes))
        yield _question(random, name, modes[name], max_size)


def _question(random: Random, name: str, mode: str, max_size: int) -> Question:
    prefix = random.choices(list(ROUTES), [weight for weight, _ in ROUTES.values()])[0]
    make = random.choice(ROUTES[prefix][1])
    size = max_size if random.random() < LARGE else random.choice([20, 300, 3000])
    if random.random() < 0.25:
        body, headers = random.choice(HEAVY)(random, mode, size)
    else:
        body, headers = make(random, mode, size)
    for change in random.sample(CHANGES, random.choice([0, 1, 1, 2])):
        body, headers = change(random, body, headers)
    return Question(prefix.format(name=name), body[:max_size], headers)


# Values


def _strange(random: Random, size: int) -> Any:
    """Return a value that hardly any key has."""
    return random.choice(STRANGE)(random, size)


def _text(random: Random, size: int) -> str:
    letters = random.choice(
        [
            "a",
            "ab ",
            "\u4e2d",
            "\U0001f389",
            "\ud83d",
            "\0",
            '"',
            "\\",
            "\u202e",
            "e\u0301",
            "[",
            "{'",
        ]
    )
    return letters * random.randint(1, max(1, size // len(letters)))


def _list(random: Random, size: int) -> list[Any]:
    item: Any = random.choice([[], {}, 0, "", "ab", None, 0.5, {"": 0}, {"role": "user"}, [[]]])
    return [item] * random.randint(0, max(1, size // 4))


def _nested(random: Random, size: int) -> Any:
    value: Any = 1
    for _ in range(random.choice([3, 30, 70, 300])):
        value = random.choice([[value], {"inputs": value}, {"": value}])
    return value


def _object(random: Random, size: int) -> dict[str, Any]:
    start = random.choice(["", "inputs", "\ud800", "k" * min(size, 1000)])
    return {f"{start}{number}": number for number in range(random.randint(0, max(1, size // 12)))}


STRANGE: list[Callable[[Random, int], Any]] = [
    _text,
    _text,
    _list,
    _nested,
    _object,
    lambda random, _size: random.choice([None, True, False, {}, [], "", " ", [[]], {"": {}}]),
    lambda random, _size: random.choice([0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**4000)]),
    lambda random, _size: random.choice([0.5, -0.0, 1e308, 1e-320, float("inf"), float("nan")]),
]


# Bodies that a model answers


def _hugging_face(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    parameters = random.choice([{}, {"top_k": 1}, {"max_new_tokens": 2}, {"stop": ["a"]}])
    inputs = random.choice([GOOD[mode], [GOOD[mode]] * 3])
    return _in_json(random, {"inputs": inputs, "parameters": parameters}, size)


def _instances(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    instances = [GOOD[mode], {"inputs": GOOD[mode], "parameters": {}}]
    return _in_json(random, {"instances": instances, "parameters": {}}, size)


def _tensors(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    return _in_json(random, {"id": "1", "inputs": _tensors_of(mode), "parameters": {}}, size)


def _tensors_of(mode: str) -> list[dict[str, Any]]:
    texts = GOOD[mode] if isinstance(GOOD[mode], dict) else {"args": GOOD[mode]}
    return [
        {"name": name, "shape": [1], "datatype": "BYTES", "data": [text]}
        for name, text in texts.items()
    ]


def _binary_tensors(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    tensors, data = _tensors_of(mode), b""
    for tensor in tensors:
        text = tensor.pop("data")[0].encode()
        packed = struct.pack("<I", len(text)) + text
        tensor["parameters"] = {"binary_data_size": len(packed)}
        data += packed
    body, headers = _in_json(random, {"inputs": tensors}, size)
    if random.random() < 0.3:
        data = random.choice([bytes(size), random.randbytes(min(size, 999)), data[:-3], data * 3])
    length = random.choice([len(body)] * 5 + [0, -1, len(body) - 2, 10**9, "x"])
    return body + data, {**headers, LENGTH: str(length)}


def _chat(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    messages = [{"role": "user", "content": "Who sings?"}] * random.choice([1, 3, 1001])
    return _in_json(random, {"messages": messages, "max_tokens": 2, "n": 1}, size)


def _prompt(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    prompt = random.choice(["Once upon", ["Once", "upon"], [5, 6], [[5, 6], [7]], [5] * 600])
    return _in_json(random, {"prompt": prompt, "max_tokens": 2, "echo": True}, size)


def _response(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    parts = [{"type": "input_text", "text": "Who sings?"}]
    message = {"type": "message", "role": "user", "content": parts}
    given = random.choice(["Once upon", [message], [message] * 1001])
    settings = {"instructions": "Be brief.", "max_output_tokens": 2, "stream": True}
    return _in_json(random, {"input": given, **settings}, size)


def _messages(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    call = {"type": "tool_use", "id": "a", "name": "look", "input": {"kind": "fox"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "A fox."}
    image = {"type": "image", "source": {"type": "base64", "media_type": "a/b", "data": "AAAA"}}
    blocks = [{"type": "text", "text": "Who sings?"}, call, result, image]
    given = {"role": random.choice(["user", "assistant"]), "content": [random.choice(blocks)]}
    tool = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    messages = [{"role": "user", "content": "Who sings?"}, given]
    settings = {"system": "Be brief.", "tools": [tool], "max_tokens": 2, "stream": True}
    return _in_json(random, {"messages": messages, **settings}, size)


def _generate(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    parameters = {"max_new_tokens": 2, "temperature": 0.5, "details": True, "stop": ["a"]}
    return _in_json(random, {"inputs": "Once upon", "parameters": parameters}, size)


def _to_tokenize(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    messages = [{"role": "user", "content": "Who sings?"}]
    given: list[tuple[str, Any]] = [
        ("inputs", "Once"),
        ("inputs", ["Once", "upon"]),
        ("prompt", "Once"),
        ("messages", messages),
    ]
    return _in_json(random, {**dict([random.choice(given)]), "add_special_tokens": True}, size)


def _ids(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    return _in_json(random, {"tokens": random.choice([[5, 6], [5] * size])}, size)


def _lines(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    parts = [_hugging_face(random, mode, size)[0] for _ in range(random.choice([1, 3, 130]))]
    return b"\n".join(parts), {"Content-Type": LINES}


def _table(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    cells = list(GOOD[mode].values()) if isinstance(GOOD[mode], dict) else [GOOD[mode]]
    row = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    rows = [row] * random.choice([1, 3, 130])
    if random.random() < 0.5:
        rows.append(random.choice(['"', ",", '"a"b', "a,b,c", "\r", '""', _text(random, size)]))
    return "\n".join(rows).encode("utf-8", "surrogatepass"), {"Content-Type": CSV}


def _bare(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    text = random.choice(["A fine film", _text(random, size), f"{{'text': {GOOD[mode]!r}}}"])
    return text.encode("utf-8", "surrogatepass"), {"Content-Type": "text/plain"}


def _form(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    value = json.dumps(random.choice([GOOD[mode], _strange(random, min(size, 3000))])).encode()
    field = random.choice([b"data", b"inputs", b"text", b"target", b"parameters", b"zz"])
    part = b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (field, value)
    return part * random.choice([1, 2]) + b"--x--\r\n", {
        "Content-Type": "multipart/form-data; boundary=x"
    }


def _in_json(random: Random, value: Any, size: int) -> tuple[bytes, dict[str, str]]:
    """Return JSON with, most often, a strange value or key in some place."""
    if random.random() < 0.8:
        value = _with(random, json.loads(json.dumps(value)), size)
    kind = random.choice([JSON, JSON, JSON, "application/json; charset=utf-8", ""])
    text = json.dumps(value, ensure_ascii=random.random() < 0.7)
    return text.encode("utf-8", "surrogatepass"), {"Content-Type": kind} if kind else {}


def _with(random: Random, value: Any, size: int) -> Any:
    """Return a value with a change in some place."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(sorted(value))
        action = random.random()
        if action < 0.15:
            return {name: each for name, each in value.items() if name != key}
        if action < 0.3:
            return {**value, _text(random, min(size, 10_000)): _strange(random, size)}
        return {**value, key: _with(random, value[key], size)}
    if isinstance(value, list) and value and random.random() < 0.7:
        at = random.randrange(len(value))
        return [*value[:at], _with(random, value[at], size), *value[at + 1 :]]
    return _strange(random, size)


# Bodies that ended a worker, or cost much


def _repeated(start: bytes, unit: bytes, end: bytes, headers: Mapping[str, str]) -> Make:
    """Return a function that fills a body with one unit."""

    def make(_random: Random, _mode: str, size: int) -> tuple[bytes, dict[str, str]]:
        count = max(1, (size - len(start) - len(end)) // len(unit))
        return start + (unit * count).rstrip(b",") + end, dict(headers)

    return make


def _compressed(make: Make) -> Make:
    """Return a function that compresses another body, ten times as large."""

    def packed(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
        body, headers = make(random, mode, size * 10)
        return gzip.compress(body, 1), {**headers, "Content-Encoding": "gzip"}

    return packed


@cache
def _compressed_zeros() -> bytes:
    return gzip.compress(bytes(2**27), 9)


def _bomb(random: Random, mode: str, size: int) -> tuple[bytes, dict[str, str]]:
    return _compressed_zeros(), {"Content-Type": JSON, "Content-Encoding": "gzip"}


IN_JSON = {"Content-Type": JSON}
REPEATED: list[Make] = [
    _repeated(b'{"', b"k", b'":1}', IN_JSON),
    _repeated(b'{"inputs":[', b"[],", b"]}", IN_JSON),
    _repeated(b'{"instances":[', b'"a",', b"]}", IN_JSON),
    _repeated(b'{"inputs":"', b"a ", b'"}', IN_JSON),
    _repeated(b'{"prompt":[', b"1,", b"]}", IN_JSON),
    _repeated(b'{"prompt":[', b"[],", b'],"n":1}', IN_JSON),
    _repeated(b'{"messages":[', b'{"role":"user","content":"a"},', b'],"n":1}', IN_JSON),
    _repeated(b'{"inputs":"a","parameters":{"stop":[', b"1,", b"]}}", IN_JSON),
    _repeated(b'{"tokens":[', b"5,", b"]}", IN_JSON),
    _repeated(b'{"input":[', b'{"role":"user","content":"a"},', b"]}", IN_JSON),
    _repeated(b'{"prompt":"', "\U0001f389".encode(), b'"}', IN_JSON),
    _repeated(b"", b"[", b"", IN_JSON),
    _repeated(b"", b'{"inputs":', b"", IN_JSON),
    _repeated(b'{"inputs":', b"9", b"}", IN_JSON),
    _repeated(b"{'a':[", b"[],", b"]}", {}),
    _repeated(b"{'a': ", b"'b' ", b"}", {}),
    _repeated(b"{'a': ", b"-", b"1}", {}),
    _repeated(b"{'target': 0x", b"f", b"}", {}),
    _repeated(b"", b"1\n", b"", {"Content-Type": LINES}),
    _repeated(b"", b"\n", b"", {"Content-Type": LINES}),
    _repeated(b"", b"a\n", b"", {"Content-Type": CSV}),
    _repeated(b"", b"ab,", b"", {"Content-Type": CSV}),
    _repeated(b'"', b"a\n", b"", {"Content-Type": CSV}),
    _repeated(b"", gzip.compress(b"", mtime=0), b"", {"Content-Encoding": "gzip"}),
    _repeated(b"", b"\0", b"", {}),
    _repeated(b"", b"\xff", b"", {"Content-Type": "text/plain"}),
]
HEAVY: list[Make] = [*REPEATED, *map(_compressed, REPEATED), _bomb]


# Changes of bytes and headers

Changed = tuple[bytes, dict[str, str]]


def _cut(random: Random, body: bytes, headers: dict[str, str]) -> Changed:
    return body[: random.randint(0, len(body))], headers


def _flip(random: Random, body: bytes, headers: dict[str, str]) -> Changed:
    at = random.randint(0, len(body))
    wrong = random.choice(
        [b"\xff", b"\xed\xa0\x80", b"\0", b'"', b"\\u", b"}", random.randbytes(5)]
    )
    return body[:at] + wrong + body[at + random.randint(0, 3) :], headers


def _recode(random: Random, body: bytes, headers: dict[str, str]) -> Changed:
    """Encode a text differently, and declare that or something else."""
    charset = random.choice(["utf-16", "utf-16-be", "latin-1", "cp1252", "utf-8-sig"])
    declared = random.choice([charset, "utf-8", "utf-7", "rot13", "x" * 300, "idna", "\x7f", ""])
    text = body.decode("utf-8", "replace").encode(charset, "replace")
    kind = headers.get("Content-Type", "text/plain").split(";")[0]
    return text, {**headers, "Content-Type": f"{kind}; charset={declared}"}


def _retype(random: Random, body: bytes, headers: dict[str, str]) -> Changed:
    kinds = [JSON, LINES, CSV, "text/plain", "application/octet-stream", "a/b+json", ";", "x" * 999]
    return body, {**headers, "Content-Type": random.choice(kinds)}


def _compress(random: Random, body: bytes, headers: dict[str, str]) -> Changed:
    packed = random.choice([gzip.compress(body, 1), zlib.compress(body, 1), body, b""])
    packed = random.choice([packed, packed, packed[: len(packed) // 2], packed + b"more"])
    coding = random.choice(["gzip", "x-gzip", "deflate", "GZIP", "br", "gzip, gzip", "y" * 999])
    return packed, {**headers, "Content-Encoding": coding}


def _head(random: Random, body: bytes, headers: dict[str, str]) -> Changed:
    name, values = random.choice(list(HEADERS.items()))
    return body, {**headers, name: random.choice(values)}


HEADERS: dict[str, list[str]] = {
    "Accept": ["text/html", CSV, LINES, "*/*;q=nan", "x" * 3000, ",;,q=;", "text/html;q=1e999"],
    "User-Agent": ["hf_hub/1", "", "x" * 3000],
    LENGTH: ["0", "-1", "9" * 40, "x", "2", "1e3", "\u0663".encode().decode("latin-1")],
    "explain": ["True", "False", "x"],
    "describe": ["True"],
    "url_path": [
        "v1/completions",
        "v1/responses",
        "v1/messages",
        "v2/models/m/infer",
        "generate_stream",
        "tokenize",
        "detokenize",
        "info",
        "x" * 3000,
        "../..",
        "%00",
    ],
    "X-Anything": ["x" * 3000],
}
CHANGES: list[Callable[[Random, bytes, dict[str, str]], Changed]] = [
    _cut,
    _flip,
    _flip,
    _recode,
    _retype,
    _compress,
    _head,
    _head,
]


# The paths of a model's routes, how often each is drawn, and the bodies that it answers

ANY: list[Make] = [
    _hugging_face,
    _hugging_face,
    _instances,
    _tensors,
    _binary_tensors,
    _lines,
    _table,
    _bare,
    _form,
    _chat,
    _prompt,
    _response,
    _messages,
    _generate,
    _to_tokenize,
    _ids,
]
ROUTES: dict[str, tuple[int, list[Make]]] = {
    "/predictions/{name}": (30, ANY),
    "/predictions/{name}/1.0": (5, ANY),
    "/explanations/{name}": (8, ANY),
    "/v1/models/{name}:predict": (8, [_instances, _hugging_face]),
    "/v1/models/{name}:explain": (3, [_instances, _hugging_face]),
    "/v2/models/{name}/infer": (8, [_tensors, _binary_tensors]),
    "/v2/models/{name}/explain": (3, [_tensors, _binary_tensors]),
    "/predictions/{name}/1.0/v2/models/{name}/infer": (4, [_tensors, _binary_tensors]),
    "/predictions/{name}/1.0/v1/chat/completions": (8, [_chat]),
    "/predictions/{name}/1.0/v1/completions": (8, [_prompt]),
    "/predictions/{name}/1.0/v1/responses": (6, [_response]),
    "/predictions/{name}/1.0/v1/messages": (6, [_messages]),
    "/predictions/{name}/1.0/generate": (4, [_generate]),
    "/predictions/{name}/1.0/generate_stream": (4, [_generate]),
    "/predictions/{name}/1.0/tokenize": (5, [_to_tokenize]),
    "/predictions/{name}/1.0/detokenize": (4, [_ids]),
    "/predictions/{name}/1.0/info": (1, ANY),
    "/predictions/{name}/1.0/v1/%61{name}": (1, ANY),
    "/invocations?model_name={name}": (8, ANY),
}
