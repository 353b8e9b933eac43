"""How a causal reranker reads a query and a document: its chat template, or its family's.

A template is read once, as the fixed texts around its places, so that a request with many
documents runs no template. Sources of the families' templates: the model cards of Qwen3-Reranker
and zerank-1, `mxbai_rerank` 0.1 and FlagEmbedding 1.3, in `inference/reranker/decoder_only`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, get_args

from transformers import PreTrainedTokenizerBase

from ..config.handler_section import RankingTemplateName
from ..errors import WrongCheckpoint, summarize

Slot = Literal["instruction", "query", "document"]
ROLES = {"instruction": "system", "query": "query", "document": "document"}
SLOT = re.compile(r"\{(instruction|query|document)\}")
# Texts by which the places of a template are found.
MARKS: Mapping[Slot, str] = {slot: f"zq{slot}qz" for slot in get_args(Slot)}
MARK = re.compile(f"zq({'|'.join(MARKS)})qz")
# Texts that a template may strip or change.
PROBES = (
    ("Who sings?", "Nina sings. " * 200),
    (" a ", "\n b: {{ c }}\n"),
    ('"yes" <b>\t', "1\n\n2"),
)
INSTRUCTION = "Find: a text."
NAME_IT = (
    "or name its family with handler.ranking_template:"
    f" {' or '.join(get_args(RankingTemplateName))}"
)


class WrittenPair(NamedTuple):
    """A query and a document in a template.

    Attributes:
        query: the first character of the query, and the one after its last.
        document: the same for the document.
    """

    text: str
    query: tuple[int, int]
    document: tuple[int, int]


@dataclass(frozen=True)
class Frame:
    """The fixed texts of a template, and the places between them.

    Attributes:
        fixed: one text more than there are places.
        strips: whether the template strips what it puts into its places.
    """

    fixed: tuple[str, ...]
    slots: tuple[Slot, ...]
    strips: bool = False

    @classmethod
    def parse(cls, text: str, place: re.Pattern[str] = SLOT) -> Frame:
        """Return the frame of a text with places."""
        parts: list[Any] = place.split(text)
        return cls(tuple(parts[::2]), tuple(parts[1::2]))

    def write(self, query: str, document: str, instruction: str = "") -> WrittenPair:
        """Return a pair in the template."""
        values = {"query": query, "document": document, "instruction": instruction}
        text, spans = self.fixed[0], dict[Slot, tuple[int, int]]()
        for slot, behind in zip(self.slots, self.fixed[1:], strict=True):
            value = values[slot].strip() if self.strips else values[slot]
            spans[slot] = len(text), len(text) + len(value)
            text += value + behind
        return WrittenPair(text, spans["query"], spans["document"])


@dataclass(frozen=True)
class RankingTemplate:
    """The template of a reranker.

    Attributes:
        plain: for pairs without an instruction.
        instructed: for pairs with one; None if the template has no place for it.
    """

    plain: Frame
    instructed: Frame | None = None

    def frame(self, instruction: str | None) -> Frame:
        """Return the frame for an instruction, or for none."""
        return self.instructed if instruction and self.instructed else self.plain

    def write(self, query: str, document: str, instruction: str | None) -> WrittenPair:
        """Return a pair in the template."""
        return self.frame(instruction).write(query, document, instruction or "")


class Family(NamedTuple):
    """A family of causal rerankers.

    Attributes:
        name: what names of its models have.
        model_type: the model type of these.
        true_token: the token whose logit is the score.
        false_token: the token whose logit is subtracted; None for none.
        is_bounded: whether scores are between 0 and 1.
    """

    name: re.Pattern[str]
    model_type: str
    template: RankingTemplate
    true_token: str
    false_token: str | None
    is_bounded: bool = True


def _chat(system: str, user: str, answer: str = "") -> Frame:
    """Return messages as Qwen's models read them, up to the beginning of the answer."""
    return Frame.parse(
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n"
        f"<|im_start|>assistant\n{answer}"
    )


def _qwen3(instruction: str) -> Frame:
    return _chat(
        "Judge whether the Document meets the requirements based on the Query and the Instruct"
        ' provided. Note that the answer can only be "yes" or "no".',
        f"<Instruct>: {instruction}\n<Query>: {{query}}\n<Document>: {{document}}",
        "<think>\n\n</think>\n\n",
    )


def _mxbai(instruction: str) -> Frame:
    return _chat(
        "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        f"{instruction}query: {{query}}\ndocument: {{document}}\n"
        "You are a search relevance expert who evaluates how well documents match search queries."
        " For each query-document pair, carefully analyze the semantic relationship between them,"
        " then provide your binary relevance judgment (0 for not relevant, 1 for relevant).\n"
        "Relevance:",
    )


def _gemma(instruction: str) -> Frame:
    return Frame.parse(f"<bos>A: {{query}}\nB: {{document}}\n{instruction}")


FAMILIES: Mapping[RankingTemplateName, Family] = {
    "qwen3_reranker": Family(
        re.compile("qwen3-reranker", re.IGNORECASE),
        "qwen3",
        RankingTemplate(
            _qwen3("Given a web search query, retrieve relevant passages that answer the query"),
            _qwen3("{instruction}"),
        ),
        "yes",
        "no",
    ),
    "mxbai_rerank_v2": Family(
        re.compile("mxbai-rerank-[a-z]+-v2", re.IGNORECASE),
        "qwen2",
        RankingTemplate(_mxbai(""), _mxbai("instruction: {instruction}\n")),
        "1",
        "0",
    ),
    "bge_reranker_gemma": Family(
        re.compile("bge-reranker-v2-gemma", re.IGNORECASE),
        "gemma",
        RankingTemplate(
            _gemma(
                "Given a query A and a passage B, determine whether the passage contains an answer"
                " to the query by providing a prediction of either 'Yes' or 'No'."
            ),
            _gemma("{instruction}"),
        ),
        "Yes",
        None,
    ),
    "zerank": Family(
        re.compile("zerank-[0-9]", re.IGNORECASE),
        "qwen3",
        RankingTemplate(_chat("{query}", "{document}")),
        "Yes",
        None,
        is_bounded=False,
    ),
}


def family_of(model_name: str, model_type: str) -> Family | None:
    """Return the family of a model by its name; None if it has none of the known names.

    Args:
        model_name: its id on the hub, or its folder.
    """
    name = PurePath(model_name).name
    of_type = (each for each in FAMILIES.values() if each.model_type == model_type)
    return next((each for each in of_type if each.name.search(name)), None)


def read_chat_template(
    tokenizer: PreTrainedTokenizerBase, arguments: Mapping[str, Any], *, structured: bool = False
) -> RankingTemplate:
    """Return the chat template of a reranker, which gets messages of a query and a document.

    Args:
        arguments: further arguments of the template.
        structured: whether the content of a message is a list of parts.

    Raises:
        WrongCheckpoint: there is none, it fails, or it writes the two otherwise than as they are.
    """

    def write(query: str, document: str, instruction: str = "") -> str:
        texts = {"instruction": instruction, "query": query, "document": document}
        messages = [
            {"role": ROLES[slot], "content": _content(text, structured=structured)}
            for slot, text in texts.items()
            if text
        ]
        written: Any = tokenizer.apply_chat_template(messages, tokenize=False, **arguments)
        return str(written)

    marks = MARKS["query"], MARKS["document"]
    try:
        plain = _checked(Frame.parse(write(*marks), MARK), write)
        instructed = Frame.parse(write(*marks, MARKS["instruction"]), MARK)
        takes_all = set(instructed.slots) == set(MARKS)
        return RankingTemplate(
            plain, _checked(instructed, write, INSTRUCTION) if takes_all else None
        )
    except WrongCheckpoint:
        raise
    except Exception as error:  # noqa: BLE001 - each template has its own errors
        raise _wrong(f"cannot be used ({summarize(error)})") from None


def mentions_pair(template: str) -> bool:
    """Return whether a chat template names the roles of a query and a document.

    One for conversations may write the messages of any role.
    """
    return all(re.search(f"[\"']{role}[\"']", template) for role in ("query", "document"))


def _content(text: str, *, structured: bool) -> Any:
    return [{"type": "text", "text": text}] if structured else text


def _checked(frame: Frame, write: Callable[..., str], instruction: str = "") -> Frame:
    """Return a frame that writes pairs as its template does.

    Raises:
        WrongCheckpoint: the template does more than put texts into places.
    """
    if missing := [slot for slot in ("query", "document") if slot not in frame.slots]:
        raise _wrong(f"does not write the {' and the '.join(missing)}")
    if frame.slots.count("document") > 1 or "query" in frame.slots[frame.slots.index("document") :]:
        raise _wrong("writes the document twice, or before the query")
    probes = [(*each, instruction) for each in PROBES]
    for candidate in (frame, replace(frame, strips=True)):
        if all(candidate.write(*each).text == write(*each) for each in probes):
            return candidate
    raise _wrong("changes the texts that it writes")


def _wrong(problem: str) -> WrongCheckpoint:
    return WrongCheckpoint(
        "chat_template",
        problem,
        "pack the template that the model was trained with, which writes messages of the roles"
        f" query and document, {NAME_IT}",
    )


def single_token(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """Return the id of a text that is one token.

    Raises:
        WrongCheckpoint: it is none.
    """
    number: Any = tokenizer.convert_tokens_to_ids(text)
    if number is None or (number == tokenizer.unk_token_id and text != tokenizer.unk_token):
        raise WrongCheckpoint(
            "tokenizer",
            f"has no token {text!r}, whose logit is the score of this reranker",
            "pack the tokenizer of the model, or add a 1_LogitScore to its modules.json",
        )
    return int(number)


def tokens_behind(
    tokenizer: PreTrainedTokenizerBase, frame: Frame, instruction: str
) -> Sequence[int]:
    """Return the tokens of a template behind every document, whatever the document ends with."""
    texts = [frame.write(each, each, instruction).text for each in ("0", "1 2 3 4")]
    found: Any = tokenizer(texts, add_special_tokens=False)["input_ids"]
    first, second = found
    count = 0
    for one, other in zip(reversed(first), reversed(second), strict=False):
        if one != other:
            break
        count += 1
    return list(first[len(first) - count :])
