"""Guard models: decoders whose chat template asks whether a message is harmful.

    Llama Guard 3                "\\n\\nsafe", or "\\n\\nunsafe" and a line of categories
    Qwen3Guard-Gen               "Safety: Safe", "Safety: Controversial" or "Safety: Unsafe"
    Granite Guardian 3.0 to 3.2  "Yes" or "No", for one risk of the template
    ShieldGemma                  "Yes" or "No", for one guideline, and an explanation

The answers differ in their first token, and the scores of these tokens after the prompt give the
probability of each answer. Text that a model writes after its answer is not read.

Sources: the model cards and the chat templates of the families.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..config.handler_section import GuardFamilyName
from ..config.messages import enumerate_names
from ..errors import Unprocessable
from .chat import Message, TemplateOptions, prompt_of
from .option_probabilities import MARK, QuestionPrompts


@dataclass(frozen=True)
class Category:
    """A category of moderation.

    Attributes:
        answers: the answers that mean it; its score is their probability.
        arguments: the arguments with which the chat template asks for it.
    """

    answers: Sequence[str]
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GuardFamily:
    """A family of guard models.

    Attributes:
        marks: texts that its chat templates have together, and others do not.
        answers: the answers of its models.
        beginning: the text before an answer, unless the prompt ends with it.
    """

    marks: Sequence[str]
    answers: Sequence[str]
    categories: Mapping[str, Category]
    beginning: str = ""

    @property
    def questions(self) -> list[Mapping[str, Any]]:
        """The arguments of the template for each prompt that the categories need."""
        found: list[Mapping[str, Any]] = []
        for category in self.categories.values():
            if category.arguments not in found:
                found.append(category.arguments)
        return found

    def scores(self, probabilities: Sequence[Sequence[float]]) -> dict[str, float]:
        """Return the score of each category.

        Args:
            probabilities: the probability of each answer to each prompt of `questions`.
        """
        found = {}
        for name, category in self.categories.items():
            own = probabilities[self.questions.index(category.arguments)]
            found[name] = sum(own[self.answers.index(answer)] for answer in category.answers)
        return found


YES_OR_NO = ("Yes", "No")
UNSAFE_CATEGORIES = "<BEGIN UNSAFE CONTENT CATEGORIES>"
# The risks of a user's message in the templates of Granite Guardian.
RISKS = (
    "harm",
    "social_bias",
    "jailbreak",
    "violence",
    "profanity",
    "sexual_content",
    "unethical_behavior",
)
# The guidelines of ShieldGemma's model card for a user's message, with which it is trained.
GUIDELINES: Mapping[str, str] = {
    "dangerous_content": '"No Dangerous Content": The prompt shall not contain or seek generation'
    " of content that harming oneself and/or others (e.g., accessing or building firearms and"
    " explosive devices, promotion of terrorism, instructions for suicide).",
    "harassment": '"No Harassment": The prompt shall not contain or seek generation of content that'
    " is malicious, intimidating, bullying, or abusive content targeting another individual (e.g.,"
    " physical threats, denial of tragic events, disparaging victims of violence).",
    "hate_speech": '"No Hate Speech": The prompt shall not contain or seek generation of content'
    " that targeting identity and/or protected attributes (e.g., racial slurs, promotion of"
    " discrimination, calls to violence against protected groups) or"
    " dehumanizing/belittling/vilifying on the bases of race, ethnicity, religion, disability, age,"
    " nationality, veteran status, sexual orientation, gender, gender identity, caste, or any other"
    " protected status. We do allow content that includes a reference to a protected individual or"
    " group in a positive manner.",
    "sexually_explicit": '"No Sexually Explicit Information": The prompt shall not contain or seek'
    " generation of content that contains references to sexual acts or other lewd content (e.g.,"
    " sexually graphic descriptions, content aimed at causing arousal). Medical or scientific terms"
    " related to human anatomy or sex education are permitted.",
}
FAMILIES: Mapping[GuardFamilyName, GuardFamily] = {
    "llama_guard": GuardFamily(
        marks=(UNSAFE_CATEGORIES, "'safe' or 'unsafe'"),
        answers=("safe", "unsafe"),
        categories={"unsafe": Category(("unsafe",))},
        beginning="\n\n",
    ),
    "qwen3guard": GuardFamily(
        marks=(UNSAFE_CATEGORIES, "Safety: Controversial"),
        answers=(" Safe", " Controversial", " Unsafe"),
        categories={
            "unsafe": Category((" Unsafe",)),
            "controversial": Category((" Controversial", " Unsafe")),
        },
        beginning="Safety:",
    ),
    "granite_guardian": GuardFamily(
        marks=("guardian_config", "<start_of_risk_definition>", "'Yes' or 'No'"),
        answers=YES_OR_NO,
        categories={
            risk: Category(("Yes",), {"guardian_config": {"risk_name": risk}}) for risk in RISKS
        },
    ),
    "shieldgemma": GuardFamily(
        marks=("guideline", "policy expert", "'Yes' or 'No'"),
        answers=YES_OR_NO,
        categories={
            name: Category(("Yes",), {"guideline": text}) for name, text in GUIDELINES.items()
        },
    ),
}


def find_guard(
    tokenizer: PreTrainedTokenizerBase, name: GuardFamilyName | None = None
) -> GuardFamily | None:
    """Return the family of a guard model; None for another model.

    Args:
        name: the name of the family, instead of that which the chat template shows.
    """
    if name is not None:
        return FAMILIES[name]
    template = str(tokenizer.chat_template or "")
    families = FAMILIES.values()
    return next((each for each in families if all(mark in template for mark in each.marks)), None)


class GuardPrompts:
    """Writes texts as messages of a user into the chat template of a guard model.

    Args:
        max_characters: the maximum number of characters of a prompt.
    """

    def __init__(
        self, family: GuardFamily, tokenizer: PreTrainedTokenizerBase, max_characters: int
    ) -> None:
        self.family = family
        self._tokenizer, self._max_characters = tokenizer, max_characters

    def prompts(self, text: str) -> list[str]:
        """Return the prompt of each question of the family.

        Raises:
            RequestError: the template refuses the text, or a prompt is too long.
        """
        return [self._written(text, arguments) for arguments in self.family.questions]

    @cached_property
    def answer_ids(self) -> Sequence[int]:
        """The id of the first token of each answer.

        Raises:
            Unprocessable: the tokenizer begins two answers with one token, or an answer begins with
                other text.
        """
        end = self._written(MARK, self.family.questions[0]).rpartition(MARK)[2]
        prompts = QuestionPrompts(self._tokenizer, self._max_characters)
        found = [prompts.first_id(end, answer) for answer in self.family.answers]
        if None in found or len(set(found)) < len(found):
            raise Unprocessable(
                "The tokenizer of this model has no token of its own for the beginning of each of"
                f" the answers {enumerate_names(map(str.strip, self.family.answers))} after its"
                " prompt; ask another model."
            )
        return [number for number in found if number is not None]

    def _written(self, text: str, arguments: Mapping[str, Any]) -> str:
        message: Message = {"role": "user", "content": text}
        options = TemplateOptions(arguments=arguments)
        prompt = prompt_of([message], self._tokenizer, self._max_characters, (), options)
        return prompt.removesuffix(self.family.beginning) + self.family.beginning
