"""Random requests from a seed, in every protocol: short and long, with settings and with errors."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hf_serve.handlers import tasks
from hf_serve.handlers.explainers import targets
from tests.e2e.asking import Question
from tests.modes import cases

JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/jsonlines"}
TEXT = {"Content-Type": "text/plain"}
PHRASES = (
    "a fine film with great cast and the music is lovely Nina Vogel sings in Paris her brother Tom "
    "lives near New York naïve señor café Zürich unbelievable 北京 opened slowly, yes. no? 42"
)
WORDS = PHRASES.split()
# Lengths in words: most texts are short, some are as long as a page.
LENGTHS = ((1, 6), (6, 20), (20, 60), (60, 400))
LENGTH_WEIGHTS = (3, 5, 3, 1)
EXPLAINED_LENGTHS = ((2, 12), (12, 40))
WRONG: Sequence[Callable[[Any], bytes]] = (
    lambda _: b'{"inputs": 5}',
    lambda _: b'{"inputs": ',
    lambda inputs: json.dumps({"inputs": inputs, "parameters": {"unknown": 1}}).encode(),
    lambda inputs: json.dumps({"inputs": inputs, "unknown": 1}).encode(),
    lambda _: b'{"instances": []}',
)
SHARE_EXPLAINED, SHARE_WRONG = 0.1, 0.1


class RandomRequests:
    """Draws requests to one model; the same seed draws the same requests.

    Args:
        mode: the mode of the model.
        model: its name in the paths.
        seed: the seed.
    """

    def __init__(self, mode: str, model: str, seed: int) -> None:
        self._cases, self._task, self._model = cases(mode), tasks.get(mode), model
        self._random = random.Random(f"{mode} {seed}")
        self._target = targets.get(mode)
        self._drawn = 0

    def draw(self, count: int) -> list[Question]:
        """Return the next requests."""
        return [self._draw() for _ in range(count)]

    def _draw(self) -> Question:
        self._drawn += 1
        kind = self._random.random()
        if self._target and kind < SHARE_EXPLAINED:
            return self._explanation(self._target.example_parameters)
        if kind < SHARE_EXPLAINED + SHARE_WRONG:
            wrong = self._random.choice(WRONG)
            return Question(self._path(), wrong(self._inputs()), JSON)
        writers = [self._hugging_face, self._kserve_v1, self._open_inference, self._json_lines]
        if self._task.description.generation.texts:
            writers += [self._openai, self._stream]
        elif self._task.description.wire.inputs is str:
            writers.append(self._plain_text)
        return self._random.choice(writers)()

    def _explanation(self, quick: Mapping[str, Any]) -> Question:
        # Rounding depends on the batch, and may change the steps of adaptive integration.
        steps = {"n_steps": 4}
        chosen = self._random.choice((steps, {"method": "input_x_gradient"}, quick))
        settings = {**self._cases.brief, **chosen}
        body = {"inputs": self._inputs(EXPLAINED_LENGTHS, (2, 1)), "parameters": settings}
        return _json(f"/explanations/{self._model}", body)

    def _hugging_face(self) -> Question:
        count = self._random.choice((0, 0, 0, 2, 5))
        inputs = [self._inputs() for _ in range(count)] if count else self._inputs()
        return _json(self._path(), {"inputs": inputs, "parameters": self._parameters()})

    def _stream(self) -> Question:
        parameters = {key: value for key, value in self._parameters().items() if key != "num_beams"}
        body = {"inputs": self._inputs(), "parameters": parameters, "stream": True}
        return _json(self._path(), body)

    def _plain_text(self) -> Question:
        return Question(self._path(), self._text().encode(), TEXT)

    def _kserve_v1(self) -> Question:
        instances = [
            {"inputs": self._inputs(), "parameters": self._parameters()}
            for _ in range(self._random.randint(1, 3))
        ]
        return _json(self._path(), {"instances": instances})

    def _open_inference(self) -> Question:
        texts = [self._inputs() for _ in range(self._random.randint(1, 3))]
        columns = (
            {name: [text[name] for text in texts] for name in texts[0]}
            if isinstance(texts[0], dict)
            else {self._cases.tensor: texts}
        )
        tensors = [
            {"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data}
            for name, data in columns.items()
        ]
        body = {"id": f"{self._model}-{self._drawn}", "inputs": tensors}
        return _json(self._path(), {**body, "parameters": dict(self._cases.brief)})

    def _json_lines(self) -> Question:
        lines = [
            json.dumps({"inputs": self._inputs(), "parameters": self._parameters()})
            for _ in range(self._random.randint(1, 4))
        ]
        return Question(self._path(), "\n".join(lines).encode(), LINES)

    def _openai(self) -> Question:
        body: dict[str, Any] = {"prompt": self._inputs(), "max_tokens": self._random.randint(1, 12)}
        if self._random.random() < 0.3:
            body["stop"] = ["e", "th"]
        if self._random.random() < 0.3:
            body |= {"temperature": 0.8, "seed": self._random.randint(0, 9)}
        else:
            body["temperature"] = 0
        return _json(f"{self._path()}/1.0/v1/completions", body)

    def _path(self) -> str:
        return f"/predictions/{self._model}"

    def _parameters(self) -> dict[str, Any]:
        return dict(self._random.choice(self._cases.parameters))

    def _inputs(self, lengths: Any = LENGTHS, weights: Sequence[int] = LENGTH_WEIGHTS) -> Any:
        return self._cases.with_text(self._text(lengths, weights))

    def _text(self, lengths: Any = LENGTHS, weights: Sequence[int] = LENGTH_WEIGHTS) -> str:
        if (
            self._task.description.generation.texts
        ):  # a prompt and its new tokens fit the model's positions
            lengths, weights = ((1, 6), (6, 12)), (1, 1)
        (few, many), *_ = self._random.choices(lengths, weights)
        return " ".join(self._random.choices(WORDS, k=self._random.randint(few, many)))


def _json(path: str, body: Any) -> Question:
    return Question(path, json.dumps(body).encode(), JSON)
