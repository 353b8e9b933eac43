"""The way of a TorchServe batch: posts -> protocols -> engine -> the same protocols -> answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from handlers.attempts import attempt
from handlers.bodies import Post, read_content
from handlers.engine import Engine
from handlers.errors import RequestError
from handlers.meter import Meter
from handlers.pages.explanation import HTML, prefers_page, render
from handlers.protocols.base import Answer, BaseProtocol, in_place
from handlers.registry import protocols
from handlers.requests import Request
from handlers.sections import Handler


@dataclass(frozen=True)
class Turn:
    """A post that was understood: who reads and writes it, and what it asks."""

    protocol: BaseProtocol
    requests: list[Request]
    explains: bool
    as_page: bool


class Dialogue:
    """Answers the posts of one model."""

    def __init__(self, engine: Engine, settings: Handler) -> None:
        self._engine = engine
        self._protocols = protocols(settings)

    def answer(self, posts: Sequence[Post], meter: Meter) -> list[Answer]:
        """Return an answer for each post; predictions and explanations may share a batch."""
        with meter.stage("read"):
            turns = [attempt(self._hear, post) for post in posts]
        heard = [turn for turn in turns if isinstance(turn, Turn)]
        outcomes = iter(self._outcomes(heard, meter))
        with meter.stage("write"):
            answers = [self._reply(turn, outcomes) for turn in turns]
        errors = sum(answer.status >= 400 for answer in answers)
        meter.count(requests=len(posts), errors=errors)
        return answers

    def _hear(self, post: Post) -> Turn:
        content = read_content(post)
        protocol = next(known for known in self._protocols if known.recognises(content))
        requests = protocol.read(content, explain=post.explains)
        as_page = post.explains and prefers_page(post.header("accept"))
        return Turn(protocol, requests, post.explains, as_page)

    def _outcomes(self, turns: Sequence[Turn], meter: Meter) -> list[list[Any]]:
        """Return the outcomes of each turn's requests; all turns of a kind go through together."""
        predictions = self._engine.predict(_requests(turns, explains=False), meter)
        explanations = self._engine.explain(_requests(turns, explains=True), meter)
        sources = {False: iter(predictions), True: iter(explanations)}
        return [[next(sources[turn.explains]) for _ in turn.requests] for turn in turns]

    def _reply(self, turn: Turn | RequestError, outcomes: Any) -> Answer:
        if isinstance(turn, RequestError):
            return self._protocols[-1].write_one(turn)
        reply = attempt(_write, turn, next(outcomes))
        return turn.protocol.write_one(reply) if isinstance(reply, RequestError) else reply


def _requests(turns: Sequence[Turn], *, explains: bool) -> list[Request]:
    return list(chain.from_iterable(turn.requests for turn in turns if turn.explains == explains))


def _write(turn: Turn, outcomes: Sequence[Any]) -> Answer:
    failed = [isinstance(outcome, RequestError) for outcome in outcomes]
    if turn.as_page and not all(failed):
        return Answer(render([in_place(outcome) for outcome in outcomes]), content_type=HTML)
    return turn.protocol.write(turn.requests, outcomes)
