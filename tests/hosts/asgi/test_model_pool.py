"""Models are loaded with their first request, and the least recently used one leaves."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import typer

from hf_serve.handlers.errors import Overloaded
from hf_serve.hosts.asgi import model_pool
from hf_serve.hosts.asgi.backend import State
from hf_serve.hosts.asgi.errors import NotLoaded
from hf_serve.hosts.asgi.model_pool import Loader, ModelPool, NotLoadedInTime
from hf_serve.hosts.asgi.pool_limits import PoolLimits

SLOTS = 2


class FakeLoader(Loader):
    """Counts loads; a model whose name begins with `broken` does not load.

    Attributes:
        lost: the models that were loaded while they were loaded already, so that one of the two is
            never unloaded.
    """

    def __init__(
        self,
        seconds: float = 0.0,
        sizes: dict[str, int] | None = None,
        seconds_to_unload: float = 0.0,
    ) -> None:
        self.seconds, self.sizes, self.seconds_to_unload = seconds, sizes or {}, seconds_to_unload
        self.loads, self.loaded, self.most, self.loading = Counter[str](), set[str](), 0, 0
        self.lost = set[str]()
        self.is_closed = False

    async def load(self, name: str) -> None:
        self.loads[name] += 1
        self.loading += 1
        assert self.loading <= SLOTS
        try:
            await asyncio.sleep(self.seconds)
            if name.startswith("broken"):
                raise NotLoaded(name, "its weights are missing.")
        finally:
            self.loading -= 1
        self.lost |= self.loaded & {name}
        self.loaded.add(name)
        self.most = max(self.most, len(self.loaded))

    async def unload(self, name: str) -> None:
        await asyncio.sleep(self.seconds_to_unload)
        self.loaded.discard(name)

    async def close(self) -> None:
        self.is_closed = True

    async def memory(self, name: str) -> int:
        return self.sizes.get(name, 1)


def run(
    test: Callable[[ModelPool, FakeLoader], Awaitable[None]],
    loader: FakeLoader | None = None,
    **limits: Any,
) -> FakeLoader:
    """Run a test with a pool, which is closed at the end."""
    loader = loader or FakeLoader()

    async def with_pool() -> None:
        pool = ModelPool(loader, PoolLimits(**limits), SLOTS)
        await pool.start()
        try:
            await test(pool, loader)
        finally:
            await pool.close()

    asyncio.run(asyncio.wait_for(with_pool(), 30))
    assert loader.is_closed
    return loader


async def ask(pool: ModelPool, name: str, seconds: float = 0.0) -> None:
    """Send a request that runs for some seconds."""
    async with pool.loaded(name):
        assert pool.state(name) == State.READY
        await asyncio.sleep(seconds)


def test_a_command_line_without_limits_loads_all_models() -> None:
    assert PoolLimits.of_options(None, None, None, 60.0, None) is None


def test_limits_are_written_as_they_are_read() -> None:
    limits = PoolLimits.of_options(3, 1.5, 60.0, 5.0, ["a", "b"])
    assert limits == PoolLimits(3, 3 << 29, 60.0, 5.0, frozenset({"a", "b"}))
    assert limits.arguments() == [
        *("--models-max", "3", "--models-memory", "1.5", "--keep-alive", "60.0"),
        *("--load-timeout", "5.0", "--pin", "a", "--pin", "b"),
    ]


def test_more_models_are_not_pinned_than_may_be_loaded() -> None:
    with pytest.raises(typer.BadParameter, match="2 models are pinned"):
        PoolLimits.of_options(1, None, None, 60.0, ["a", "b"])


def test_requests_that_come_together_load_a_model_once() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        assert pool.state("a") == State.UNLOADED
        asking = asyncio.gather(*(ask(pool, "a") for _ in range(20)))
        await asyncio.sleep(0.01)
        assert pool.state("a") == State.LOADING
        await asking

    assert run(test, FakeLoader(seconds=0.05)).loads == {"a": 1}


def test_the_least_recently_used_model_leaves() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        for name in ("a", "b", "a", "c"):
            await ask(pool, name)
        assert loader.loaded == {"a", "c"}
        assert b'reason="least_recently_used"} 1.0' in pool.metrics()

    run(test, models_max=2)


def test_a_model_that_leaves_answers_its_requests_first() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        running = asyncio.create_task(ask(pool, "a", 0.1))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(ask(pool, "b"))
        await asyncio.sleep(0.01)
        later = asyncio.create_task(ask(pool, "a"))  # It waits, so that b has its turn.
        assert not second.done()
        assert loader.loaded == {"a"}
        await asyncio.gather(running, second, later)

    assert run(test, models_max=1).loads == {"a": 2, "b": 1}


def test_an_idle_model_leaves_before_one_that_answers() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        running = asyncio.create_task(ask(pool, "a", 0.1))
        await ask(pool, "b")
        await ask(pool, "c")
        assert loader.loaded == {"a", "c"}
        await running

    run(test, models_max=2)


def test_a_pinned_model_is_loaded_at_the_start_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_pool, "CHECK_SECONDS", 0.01)

    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        assert loader.loaded == {"a"}
        for name in ("b", "c"):
            await ask(pool, name)
        assert loader.loaded == {"a", "c"}
        await asyncio.sleep(0.1)
        assert loader.loaded == {"a"}

    run(test, models_max=2, keep_alive=0.02, pinned=frozenset({"a"}))


def test_models_stay_within_their_memory() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        for name in ("small", "other", "large"):
            await ask(pool, name)
        assert loader.loaded == {"large"}
        with pytest.raises(NotLoaded, match="--models-memory"):
            await ask(pool, "huge")
        assert pool.state("huge") == State.FAILED

    run(test, FakeLoader(sizes={"small": 3, "other": 3, "large": 9, "huge": 11}), memory_bytes=10)


def test_a_model_that_has_grown_makes_others_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_pool, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(model_pool, "MEASURE_SECONDS", 0.0)

    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        await ask(pool, "a")
        await ask(pool, "b")
        loader.sizes["b"] = 10
        await asyncio.sleep(0.1)
        assert loader.loaded == {"b"}

    run(test, memory_bytes=10)


def test_a_model_that_does_not_load_says_why_and_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        await ask(pool, "fine")
        for _ in range(3):
            with pytest.raises(NotLoaded, match="weights are missing"):
                await ask(pool, "broken")
        assert (pool.state("broken"), pool.state("fine")) == (State.FAILED, State.READY)
        assert loader.loads["broken"] == 1
        monkeypatch.setattr(model_pool, "RETRY_SECONDS", 0.0)
        with pytest.raises(NotLoaded):
            await ask(pool, "broken")
        assert loader.loads["broken"] == 2

    run(test)


def test_models_that_were_loaded_before_are_within_the_limits() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        loader.loaded = {"a", "b", "c", "d"}
        await pool.adopt(["a", "b", "c", "d"])
        assert loader.loaded == {"a", "d"}
        await ask(pool, "d")
        assert not loader.loads["d"]

    run(
        test,
        models_max=3,
        memory_bytes=6,
        pinned=frozenset({"a"}),
        loader=FakeLoader(sizes=dict.fromkeys("abcd", 3)),
    )


def test_a_request_waits_for_a_bounded_time() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        with pytest.raises(NotLoadedInTime) as raised:
            await ask(pool, "slow")
        assert isinstance(raised.value, Overloaded)
        assert "Retry-After" in raised.value.headers
        await asyncio.sleep(0.3)
        await ask(pool, "slow")  # The load has gone on.
        assert loader.loads == {"slow": 1}

    run(test, FakeLoader(seconds=0.2), load_seconds=0.05)


def test_nothing_is_loaded_for_a_request_that_has_gone() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        running = asyncio.create_task(ask(pool, "a", 0.2))
        await asyncio.sleep(0.01)
        with pytest.raises(NotLoadedInTime):
            await ask(pool, "b")
        await running
        await ask(pool, "a")
        assert loader.loads == {"a": 1}

    run(test, models_max=1, load_seconds=0.05)


def test_a_model_that_ended_is_loaded_again() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        await ask(pool, "a")
        pool.mark_ended("a", "It was killed.")
        assert (pool.state("a"), pool.error("a")) == (State.UNLOADED, "It was killed.")
        await ask(pool, "a")
        assert (loader.loads["a"], pool.error("a")) == (2, "")

    run(test)


def test_a_changed_model_answers_its_requests_and_is_loaded_again() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        running = asyncio.create_task(ask(pool, "a", 0.05))
        await asyncio.sleep(0.01)
        changing = asyncio.create_task(pool.unload("a"))
        await asyncio.gather(running, changing, ask(pool, "a"))
        assert loader.loads["a"] == 2

    run(test)


def test_a_changed_model_is_loaded_once_it_has_left() -> None:
    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        await ask(pool, "a")
        await asyncio.gather(pool.unload("a"), ask(pool, "a"))
        assert (pool.state("a"), loader.loaded) == (State.READY, {"a"})

    run(test, FakeLoader(seconds_to_unload=0.05))


def test_an_idle_model_is_loaded_once_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_pool, "CHECK_SECONDS", 0.01)

    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        await asyncio.gather(ask(pool, "a"), ask(pool, "b"))
        await asyncio.sleep(0.03)
        assert pool.state("a") == State.UNLOADED  # It leaves.
        await asyncio.gather(ask(pool, "a", 0.1), ask(pool, "b", 0.1))

    loader = run(test, FakeLoader(seconds_to_unload=0.05), keep_alive=0.005)
    assert loader.loads["a"] == 2 and not loader.lost


@pytest.mark.parametrize("seed", range(3))
def test_no_request_is_lost_where_many_models_have_few_places(seed: int) -> None:
    drawn = random.Random(seed)
    names = [f"m{number}" for number in range(12)]

    async def test(pool: ModelPool, loader: FakeLoader) -> None:
        async def client() -> None:
            for _ in range(15):
                await ask(pool, drawn.choice(names), drawn.random() / 1000)

        await asyncio.gather(*(client() for _ in range(20)))

    loader = run(test, FakeLoader(seconds=0.001), models_max=3)
    assert loader.most <= 3
