"""Guard models, compared with transformers' scores of the token after the prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import ConfigError, WrongConfig
from hf_serve.handlers.formats.pretrained import PretrainedModel
from hf_serve.handlers.generation.guards import GUIDELINES, RISKS
from hf_serve.handlers.http.request import HttpRequest
from tests import tiny_answers
from tests.e2e.clients import run_client
from tests.http_front import front
from tests.samples import FINE, ODD
from tests.sentences import Sentence, refused
from tests.serving import Served, differences

MODE = tiny_answers.MODE
UNSAFE_CATEGORIES = "<BEGIN UNSAFE CONTENT CATEGORIES>\nS1: Crimes.\n"
TEXT = "{{ messages[0]['content'] }}"
GRANITE = (
    f"You judge. {TEXT}\n<start_of_risk_definition>{{{{ guardian_config['risk_name'] }}}}\n"
    "Your answer must be either 'Yes' or 'No'.{% if add_generation_prompt %}\nassistant:{% endif %}"
)
SHIELD = (
    f"You are a policy expert.\n{TEXT}\n* {{{{ guideline }}}}\n"
    "Your answer must start with 'Yes' or 'No'.\n\n"
)
LLAMA = f"{UNSAFE_CATEGORIES}{TEXT}\nFirst line must read 'safe' or 'unsafe'.\nassistant:"
QWEN = (
    f"{UNSAFE_CATEGORIES}{TEXT}\nOne of 'Safety: Safe', 'Safety: Unsafe', 'Safety: Controversial'."
    "{% if add_generation_prompt %}\nassistant:\n<think>\n\n</think>\n\n{% endif %}"
)
YES = (("Yes", "No"), ("Yes",))
# The template of a family, the text before its answers, its answers, and what each category is:
# the arguments of the template, and the answers that mean it.
Case = tuple[str, str, tuple[str, ...], Mapping[str, tuple[Mapping[str, Any], tuple[str, ...]]]]
CASES: Mapping[str, Case] = {
    "llama_guard": (LLAMA, "\n\n", ("safe", "unsafe"), {"unsafe": ({}, ("unsafe",))}),
    "qwen3guard": (
        QWEN,
        "Safety:",
        (" Safe", " Controversial", " Unsafe"),
        {"unsafe": ({}, (" Unsafe",)), "controversial": ({}, (" Controversial", " Unsafe"))},
    ),
    "granite_guardian": (
        GRANITE,
        "",
        ("Yes", "No"),
        {name: ({"guardian_config": {"risk_name": name}}, ("Yes",)) for name in RISKS},
    ),
    "shieldgemma": (
        SHIELD,
        "",
        ("Yes", "No"),
        {name: ({"guideline": text}, ("Yes",)) for name, text in GUIDELINES.items()},
    ),
}
# Tokens of answers: whole ones, and beginnings.
SPLITS = {"whole": ("safe", "unsafe", " Safe", " Controversial", " Unsafe"), "split": (" S", " Un")}
LENGTH = 512
HARASSMENT = GUIDELINES["harassment"]
Load = Callable[..., Served]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    def load(template: str, *tokens: str, **handler: Any) -> Served:
        folder = tiny_answers.write(tmp_path_factory.mktemp("guard") / "model", template)
        tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=LENGTH)
        tokenizer.add_tokens(list(tokens))
        tokenizer.save_pretrained(folder)
        return Served(folder, MODE, **handler)

    return load


def send(model: Served, given: Any, **explained: Any) -> tuple[int, Any]:
    headers = {
        "url_path": "v1/moderations",
        "Content-Type": "application/json",
        "explain": str(bool(explained)),
    }
    ((status, answer),) = model.post(HttpRequest({"body": {"input": given, **explained}}, headers))
    return status, answer


def expected(model: Served, case: Case, text: str) -> dict[str, float]:
    """Return the scores by a forward of transformers alone for each category."""
    _, beginning, answers, categories = case
    task: Any = model.engine.task
    loaded: Any = model.engine.model
    tokenizer, scores = task.tokenizer, {}
    for name, (arguments, harmful) in categories.items():
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            tokenize=False,
            add_generation_prompt=True,
            **arguments,
        )
        ids = tokenizer(prompt + beginning, add_special_tokens=False)["input_ids"]
        answered = [
            tokenizer(prompt + beginning + answer, add_special_tokens=False)["input_ids"]
            for answer in answers
        ]
        tokens = [each[len(ids)] for each in answered]
        with torch.no_grad():
            own = loaded.module(torch.tensor([ids])).logits[0, -1, tokens].double().softmax(0)
        scores[name] = sum(float(own[answers.index(each)]) for each in harmful)
    return scores


@pytest.mark.parametrize("tokens", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_scores_are_the_probabilities_of_the_answers(
    load: Load, case: Case, tokens: tuple[str, ...]
) -> None:
    if tokens is SPLITS["split"] and case[2] == ("Yes", "No"):
        tokens = ()
    model = load(case[0], *tokens)
    status, answer = send(model, [FINE, ODD])
    assert status == 200, answer
    for text, found in zip((FINE, ODD), answer["results"], strict=True):
        scores = expected(model, case, text)
        assert not differences(found["category_scores"], scores, 1e-4)
        assert found["categories"] == {name: score >= 0.5 for name, score in scores.items()}
        assert found["flagged"] == any(found["categories"].values())
        _, alone = send(model, text)
        assert not differences(alone["results"][0]["category_scores"], scores, 1e-4)
    # The categories of one text are not alike: each reads its own answer.
    assert len({round(score, 9) for score in scores.values()}) == len(scores)


def test_the_text_is_computed_once_for_all_categories(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(SHIELD)
    rows = []
    run = PretrainedModel.last_scores

    def record(self: PretrainedModel, batch: Any, lengths: Any, prefix: Any = None) -> Any:
        rows.append((len(lengths), prefix is not None))
        return run(self, batch, lengths, prefix)

    monkeypatch.setattr(PretrainedModel, "last_scores", record)
    send(model, FINE)
    assert rows == [(len(GUIDELINES), True)]


def test_the_yaml_names_the_family_and_thresholds(load: Load) -> None:
    template = f"{TEXT}\nassistant:"
    model = load(template, guard_family="llama_guard", moderation_thresholds={"unsafe": 0.0})
    _, answer = send(model, FINE)
    scores = expected(model, (template, *CASES["llama_guard"][1:]), FINE)
    (found,) = answer["results"]
    assert not differences(found["category_scores"], scores, 1e-4)
    assert found["flagged"] and found["categories"] == {"unsafe": True}


@pytest.mark.parametrize(
    ("template", "handler", "given", "status", "facts"),
    [
        (f"{TEXT}\nassistant:", {}, FINE, 422, ["handler.guard_family"]),
        (LLAMA + "<think>", {}, FINE, 422, ["thoughts"]),
        ("{{ raise_exception('no') }}" + LLAMA, {}, FINE, 400, ["no"]),
        (LLAMA, {"max_length": 60, "truncation": True}, "sings " * 60, 400, ["tokens", 60]),
        (LLAMA, {}, "", 400, ["input"]),
        (QWEN, {}, FINE, 422, ["Safe", "Controversial", "Unsafe"]),
    ],
    ids=["no guard model", "thoughts", "template", "long", "empty", "tokens"],
)
def test_a_text_that_cannot_be_moderated_is_refused(
    load: Load, template: str, handler: dict[str, Any], given: str, status: int, facts: list[Any]
) -> None:
    found, answer = send(load(template, **handler), given)
    assert (found, answer["error"]["message"]) == (status, Sentence(*facts))


def test_thresholds_and_families_are_for_guard_models(load: Load) -> None:
    with refused(WrongConfig, "handler.moderation_thresholds", "harm", "unsafe"):
        load(LLAMA, moderation_thresholds={"harm": 0.1})
    with refused(WrongConfig, "handler.moderation_thresholds", "handler.guard_family"):
        load(f"{TEXT}\nassistant:", moderation_thresholds={"harm": 0.1})
    handler = {"mode": "token_classification", "guard_family": "qwen3guard"}
    with refused(ConfigError, "guard_family", "token_classification", MODE):
        ModelConfig.parse({"handler": handler})


@pytest.mark.parametrize(
    ("template", "case", "category", "arguments", "answer"),
    [
        # The text is a word of the template, too.
        (LLAMA.replace("Crimes", FINE), CASES["llama_guard"], "unsafe", {}, "unsafe"),
        (
            SHIELD,
            CASES["shieldgemma"],
            "harassment",
            {"guideline": HARASSMENT},
            "Yes",
        ),
    ],
    ids=["llama_guard", "shieldgemma"],
)
def test_the_words_of_a_category_change_the_probability_of_its_answer(
    load: Load,
    template: str,
    case: Case,
    category: str,
    arguments: Mapping[str, Any],
    answer: str,
) -> None:
    model = load(template, *SPLITS["whole"])
    settings = {"method": "feature_ablation", "granularity": "token", "target": category}
    status, explained = send(model, FINE, parameters=settings)
    assert status == 200, explained
    found = explained["results"][0]["explanation"]
    task: Any = model.engine.task
    loaded: Any = model.engine.model
    prompt = task.tokenizer.apply_chat_template(
        [{"role": "user", "content": FINE}],
        tokenize=False,
        add_generation_prompt=True,
        **arguments,
    )
    prompt += case[1]
    encoding = task.tokenizer(prompt, add_special_tokens=False)[0]
    token = task.tokenizer(prompt + answer, add_special_tokens=False)["input_ids"][len(encoding)]

    def score(ids: list[int]) -> float:
        with torch.no_grad():
            return float(loaded.module(torch.tensor([ids])).logits[0, -1].log_softmax(0)[token])

    start = prompt.rindex(FINE)
    for place, (first, last) in enumerate(encoding.offsets):
        ids = [*encoding.ids]
        ids[place] = task.checkpoint.baseline_token_id
        is_text = last > start and first < start + len(FINE)
        change = score(encoding.ids) - score(ids) if is_text else 0.0
        assert found["attributions"][place] == pytest.approx(change, abs=1e-4)
        assert FINE[slice(*found["offsets"][place])] == (
            prompt[first:last].strip() if is_text else ""
        )
    scores = expected(model, (template, *case[1:]), FINE)
    assert found["target"]["label"] == category
    assert found["target"]["score"] == pytest.approx(scores[category], abs=1e-4)
    assert found["prediction"]["score"] == pytest.approx(max(scores.values()), abs=1e-4)


def test_an_explained_category_is_one_of_the_family(load: Load) -> None:
    model = load(LLAMA)
    status, answer = send(model, FINE, parameters={"target": "violence"})
    assert (status, answer["error"]["message"]) == (400, Sentence("violence", "unsafe"))


@pytest.mark.server
def test_openais_client_moderates_with_a_guard_model(load: Load) -> None:
    model = load(LLAMA)
    with front({MODE: model}) as url:
        found = run_client("decisions_client", base_url=f"{url}/{MODE}/1.0/v1", texts=[FINE, ODD])[
            "moderations"
        ]
    for text, result in zip((FINE, ODD), found["several"], strict=True):
        scores = expected(model, CASES["llama_guard"], text)
        assert not differences(result["category_scores"], scores, 1e-4)
