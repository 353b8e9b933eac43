from __future__ import annotations

from itertools import chain
from pathlib import Path

from benchmarks.text_generation.contender import Job, Plan
from benchmarks.text_generation.models import word_tokenizer
from benchmarks.text_generation.workloads import (
    long_requests,
    short_requests,
    warm_up,
    workload,
)

VOCABULARY = 1000


def test_each_contender_gets_the_same_requests() -> None:
    assert workload("own", 50, VOCABULARY) == workload("own", 50, VOCABULARY)


def test_prompts_and_new_tokens_are_of_mixed_length() -> None:
    requests = workload("equal", 300, VOCABULARY)
    prompts = {len(each.prompt) for each in requests}
    new_tokens = {each.new_tokens for each in requests}
    assert min(prompts) < 15 and max(prompts) > 190 and prompts <= set(range(5, 201))
    assert min(new_tokens) < 15 and max(new_tokens) > 120 and new_tokens <= set(range(8, 129))


def test_equal_settings_are_greedy() -> None:
    assert {(each.temperature, each.seed) for each in workload("equal", 9, VOCABULARY)} == {
        (None, None)
    }


def test_own_settings_are_a_temperature_and_a_seed_for_each_request() -> None:
    requests = workload("own", 50, VOCABULARY)
    assert len({each.temperature for each in requests}) == len({each.seed for each in requests})
    assert len({each.seed for each in requests}) == 50
    assert all(0.5 <= (each.temperature or 0) <= 1.5 for each in requests)


def test_no_two_lists_share_a_prompt_that_an_engine_could_have_cached() -> None:
    lists = [workload("equal", 20, VOCABULARY), workload("own", 20, VOCABULARY)]
    lists += [make(20, VOCABULARY) for make in (warm_up, long_requests, short_requests)]
    prompts = [tuple(each.prompt) for each in chain(*lists)]
    assert len(set(prompts)) == len(prompts)


def test_a_prompt_is_the_same_as_text() -> None:
    tokenizer = word_tokenizer(VOCABULARY)
    for each in workload("equal", 20, VOCABULARY):
        assert tokenizer(tokenizer.decode(each.prompt))["input_ids"] == each.prompt


def test_a_job_has_the_requests_of_its_plan() -> None:
    job = Job("model", Path("model"), VOCABULARY, Plan(clients=3, requests=5))
    assert {name: len(each) for name, each in job.workloads.items()} == {"equal": 5, "own": 5}
    assert len(job.warm_up) == 5
