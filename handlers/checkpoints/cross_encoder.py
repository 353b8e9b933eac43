"""The files of a reranker: its modules, its scores, and how it reads a query and a document.

    modules.json                         the modules in their order, and their folders
    sentence_bert_config.json            transformer_task, modality_config, processing_kwargs
    config_sentence_transformers.json    activation_fn, prompts, default_prompt_name
    1_LogitScore/config.json             true_token_id, false_token_id

A checkpoint has one of these kinds:

- A classifier, with or without modules.json. A causal classifier reads the last token.
- A model without a head, with Pooling and other modules behind it, the last of which is a Dense
  that writes `scores`.
- A causal model with LogitScore, or one of a known family, or with a template of a query and a
  document: the score is the logit of one token behind the pair, or of one minus another.

With the modality `message`, and in checkpoints of causal models without modules.json, the pair is
written in a template. Source of the formats: the `save` methods of sentence-transformers 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, Field, NonNegativeInt
from transformers import PreTrainedModel

from ..compat.transformers import classifies_last_token
from ..config.documents import read_json
from ..errors import WrongCheckpoint
from .architecture import is_decoder
from .checkpoint import Checkpoint
from .pooling import PoolingHead, TextSlots
from .prompts import Prompts
from .ranking_template import (
    FAMILIES,
    NAME_IT,
    Family,
    RankingTemplate,
    family_of,
    mentions_pair,
    read_chat_template,
    single_token,
)
from .sentence_transformers import (
    BERT_CONFIG,
    CONFIG,
    FIRST,
    MODULES,
    SETTINGS,
    DenseConfig,
    Limits,
    ModuleEntry,
    PoolingConfig,
    PromptTexts,
    SentencePooling,
    TransformerConfig,
    layers_dimension,
    load_layers,
    module_kinds,
    read_model,
    read_modules,
)

TRANSFORMER, LOGIT_SCORE = "Transformer", "LogitScore"
VECTOR, SCORES = "sentence_embedding", "scores"
OUTPUT = "logits"
IDENTITY = "torch.nn.modules.linear.Identity"

Kind = Literal["classifier", "causal_classifier", "pooled", "logits"]
# What sentence-transformers calls the model of each kind.
TASKS: Mapping[Kind, str] = {
    "classifier": "sequence-classification",
    "causal_classifier": "sequence-classification",
    "pooled": "feature-extraction",
    "logits": "text-generation",
}


class Settings(BaseModel):
    """config_sentence_transformers.json of a cross-encoder."""

    activation_fn: Any = None
    prompts: PromptTexts = Field(default_factory=dict)
    default_prompt_name: str | None = None


class LogitScoreConfig(BaseModel):
    """The tokens whose logits are the score."""

    true_token_id: NonNegativeInt
    false_token_id: NonNegativeInt | None = None


@dataclass(frozen=True)
class CrossEncoder:
    """The files of a checkpoint other than its model.

    Attributes:
        scored: the tokens of a causal model whose logits are the score.
        pooling: the pooling of a model without a head.
        layers: the modules behind the pooling.
        num_labels: the number of scores of a pair.
        template: how a pair is written; None where its texts are two inputs of the tokenizer.
        activation: the path of the function that makes scores of logits, if a file names one.
        max_length: the maximum number of tokens of a pair, if a file has one.
    """

    directory: Path
    kind: Kind
    num_labels: int
    template: RankingTemplate | None
    activation: Any
    prompts: Prompts
    max_length: int | None
    do_lower_case: bool
    scored: LogitScoreConfig | None = None
    pooling: PoolingConfig | None = None
    layers: Sequence[ModuleEntry] = ()

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> CrossEncoder:
        """Read the files of a checkpoint.

        Raises:
            WrongCheckpoint: a file is damaged, a module is not supported, or a causal model has no
                template.
        """
        return _Reader(checkpoint).read()

    def reduction(self) -> PoolingHead:
        """Return what makes the scores of a model that is no plain classifier.

        Raises:
            WrongCheckpoint: weights are missing or do not fit.
        """
        if self.scored is not None:
            return LogitScore(self.scored)
        if self.pooling is None:
            return LastTokenScore()
        return ScorePooling(self.pooling, load_layers(self.directory, self.layers))


class _Reader:
    """Reads the files of one checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.directory = checkpoint.directory
        self.has_modules = (self.directory / MODULES).is_file()
        self.kinds = module_kinds(self.directory)
        self.config = read_model(self.directory / BERT_CONFIG, TransformerConfig, optional=True)
        self.settings = read_model(self.directory / SETTINGS, Settings, optional=True)

    def read(self) -> CrossEncoder:
        kind = self._kind()
        self._check_task(kind)
        family = self._family()
        template = self._template(family)
        limits = Limits.read(self.directory)
        lengths = limits.max_seq_length, self.config.processing_kwargs.text.max_length
        prompts, name = self.settings.prompts, self.settings.default_prompt_name
        if name is not None and name not in prompts:
            raise WrongCheckpoint(
                SETTINGS,
                f"has default_prompt_name {name:.80}, which is not one of its prompts",
                "add the prompt or remove the name",
            )
        return CrossEncoder(
            self.directory,
            kind,
            template=template,
            activation=self._activation(kind, family),
            prompts=Prompts(prompts, name),
            max_length=min(filter(None, lengths), default=None),
            do_lower_case=limits.do_lower_case,
            **self._scores(kind, family),
        )

    def _kind(self) -> Kind:
        if self.has_modules:
            if LOGIT_SCORE in self.kinds:
                return "logits"
            if self.kinds != [TRANSFORMER]:
                return "pooled"
        elif self._is_causal and "Classification" not in self.checkpoint.architecture:
            return "logits"
        classifies_last = classifies_last_token(self.checkpoint.config)
        return "causal_classifier" if classifies_last else "classifier"

    @property
    def _is_causal(self) -> bool:
        return is_decoder(self.checkpoint.config)

    def _check_task(self, kind: Kind) -> None:
        """Check that sentence-transformers loads the model that this kind has."""
        task = self.config.transformer_task
        if self.has_modules and task not in (None, TASKS[kind]):
            raise WrongCheckpoint(
                BERT_CONFIG,
                f"has transformer_task {task:.80} with the modules {', '.join(self.kinds)[:80]}",
                f"use a checkpoint of texts with the task {TASKS[kind]}",
            )

    def _family(self) -> Family | None:
        """Return the family that the YAML names, or the name of a model without modules.json."""
        handler = self.checkpoint.handler
        if handler.ranking_template is not None:
            return FAMILIES[handler.ranking_template]
        if self.has_modules or not self._is_causal:
            return None
        return family_of(handler.model_name or "", self.checkpoint.config.model_type)

    def _template(self, family: Family | None) -> RankingTemplate | None:
        is_named = self.checkpoint.handler.ranking_template is not None
        if family is not None and is_named:
            return family.template
        if self.has_modules:
            message = self.config.modality_config.get("message")
            return self._own_template(message.format == "structured") if message else None
        if not self._is_causal:
            return None
        if mentions_pair(_template_text(self.directory)):
            return self._own_template()
        if family is None:
            raise WrongCheckpoint(
                "handler.mode",
                f"is sentence_ranking, and the checkpoint is a {self.checkpoint.architecture}"
                " without a template of a query and a document and without a known name",
                "use a cross-encoder, a checkpoint that sentence-transformers 5.4 or later has"
                f" saved, {NAME_IT}",
            )
        return family.template

    def _own_template(self, structured: bool = False) -> RankingTemplate:
        arguments = self.config.processing_kwargs.chat_template
        return read_chat_template(self.checkpoint.tokenizer, arguments, structured=structured)

    def _activation(self, kind: Kind, family: Family | None) -> Any:
        config = self.checkpoint.config
        own = getattr(config, "sentence_transformers", None)
        candidates = (
            self.settings.activation_fn,
            own.get("activation_fn") if isinstance(own, Mapping) else None,
            getattr(config, "sbert_ce_default_activation_function", None),
            IDENTITY if family and kind == "logits" and not family.is_bounded else None,
        )
        return next((name for name in candidates if name is not None), None)

    def _scores(self, kind: Kind, family: Family | None) -> dict[str, Any]:
        """Return what makes the scores, and how many they are."""
        if kind in ("classifier", "causal_classifier"):
            return {"num_labels": self.checkpoint.config.num_labels}
        if kind == "pooled":
            return self._pooled()
        scored = self._logit_score() if self.has_modules else self._default_tokens(family)
        self._check_tokens(scored)
        return {"num_labels": 1, "scored": scored}

    def _logit_score(self) -> LogitScoreConfig:
        if self.kinds != [TRANSFORMER, LOGIT_SCORE]:
            raise WrongCheckpoint(
                MODULES,
                f"has the modules {', '.join(self.kinds)[:80]}",
                f"use a checkpoint of {TRANSFORMER}, {LOGIT_SCORE}",
            )
        (entry,) = read_modules(self.directory, (TRANSFORMER, LOGIT_SCORE))
        return read_model(self.directory / entry.path / CONFIG, LogitScoreConfig)

    def _default_tokens(self, family: Family | None) -> LogitScoreConfig:
        """Return the tokens of a family; of others they are yes and no."""
        true, false = (family.true_token, family.false_token) if family else ("yes", "no")
        tokenizer = self.checkpoint.tokenizer
        return LogitScoreConfig(
            true_token_id=single_token(tokenizer, true),
            false_token_id=None if false is None else single_token(tokenizer, false),
        )

    def _check_tokens(self, scored: LogitScoreConfig) -> None:
        size = self.checkpoint.vocab_size
        ids = (scored.true_token_id, scored.false_token_id)
        if outside := [each for each in ids if each is not None and each >= size]:
            raise WrongCheckpoint(
                LOGIT_SCORE,
                f"names the token {outside[0]:,}, and the model has {size:,} tokens",
                "use a checkpoint whose modules fit its model",
            )

    def _pooled(self) -> dict[str, Any]:
        pooling, *layers = read_modules(self.directory, FIRST)
        config = read_model(self.directory / pooling.path / CONFIG, PoolingConfig)
        if not config.include_prompt:
            raise WrongCheckpoint(
                f"{pooling.path}/{CONFIG}",
                "has include_prompt: false, which rankings do not support",
                "use a checkpoint that pools all tokens",
            )
        self._check_layers(layers)
        hidden_size = self.checkpoint.config.get_text_config().hidden_size
        size = int(hidden_size) * len(config.modes)
        labels = layers_dimension(self.directory, size, layers)
        return {"num_labels": labels, "pooling": config, "layers": tuple(layers)}

    def _check_layers(self, layers: Sequence[ModuleEntry]) -> None:
        """Check that each module reads what the one before has written, and the last the scores."""
        names = [self._names(each) for each in layers]
        if not names or names != [*[(VECTOR, VECTOR)] * (len(names) - 1), (VECTOR, SCORES)]:
            written = ", ".join(name for _, name in names) or "nothing"
            raise WrongCheckpoint(
                MODULES,
                f"has modules behind the pooling that write {written:.80}",
                f"use a checkpoint whose last module is a Dense with module_output_name: {SCORES},"
                f" and whose other ones read and write {VECTOR}",
            )

    def _names(self, entry: ModuleEntry) -> tuple[str, str]:
        """Return the names of what a module reads and writes."""
        if entry.kind != "Dense":
            return VECTOR, VECTOR
        config = read_model(self.directory / entry.path / CONFIG, DenseConfig)
        return config.module_input_name, config.module_output_name or config.module_input_name


class ScorePooling(SentencePooling):
    """Makes the logits of each pair from the vectors of its tokens, in float32."""

    writes = OUTPUT


class LogitScore(PoolingHead):
    """The logit of one token behind the last one of each pair, or of one minus another.

    The head of the model has only the rows of these tokens.
    """

    reads = OUTPUT
    writes = OUTPUT

    def __init__(self, config: LogitScoreConfig) -> None:
        super().__init__()
        ids = config.true_token_id, config.false_token_id
        self.ids = [each for each in ids if each is not None]

    def prepare(self, module: PreTrainedModel) -> PreTrainedModel:
        whole: Any = module.get_output_embeddings()
        rows = torch.nn.Linear(
            whole.in_features, len(self.ids), bias=whole.bias is not None, device="meta"
        )
        values = {name: each.detach()[self.ids].clone() for name, each in whole.named_parameters()}
        rows.load_state_dict(values, assign=True)
        module.set_output_embeddings(rows)
        module.config.use_cache = False
        return module

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        logits = slots.last(values.float())
        return logits if len(self.ids) == 1 else logits[:, :1] - logits[:, 1:]


class LastTokenScore(PoolingHead):
    """The head of a causal classifier over the last token of each pair, in float32."""

    writes = OUTPUT

    def prepare(self, module: PreTrainedModel) -> PreTrainedModel:
        self.head: Any = module.score.float()
        module.config.use_cache = False
        base: Any = module.base_model
        return base

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        logits: torch.Tensor = self.head(slots.last(values.float()))
        return logits


def _template_text(directory: Path) -> str:
    """Return the chat template of a checkpoint as it is in its files; empty without one."""
    with suppress(OSError, UnicodeDecodeError):
        return (directory / "chat_template.jinja").read_text(encoding="utf-8")
    with suppress(OSError, ValueError, AttributeError):
        settings = read_json(directory / "tokenizer_config.json")
        return str(settings.get("chat_template") or "")
    return ""
