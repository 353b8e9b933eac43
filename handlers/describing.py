"""From a task to what its model tells about itself."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from handlers.accounts.base import BaseAccount
from handlers.description import Description, Limits, Schema
from handlers.explainers import explainer_class
from handlers.explaining import WITHOUT_GRADIENTS
from handlers.explanation_parameters import ExplanationParameters
from handlers.pairs import computes_in
from handlers.parameters import Parameters
from handlers.tasks.base import BaseTask
from handlers.words import files_of


class PlainSchema(GenerateJsonSchema):
    """JSON schemas without the titles that only say a field's name again."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def describe(
    task: BaseTask[Any, Any],
    name: str = "model",
    version: str = "1.0",
    account: BaseAccount[Any] | None = None,
    *,
    gradients: bool = True,
) -> Description:
    """Return what a task's model tells about itself.

    Args:
        task: the task, with its checkpoint and settings.
        name: the name under which the model is served.
        version: the archive's version.
        account: what `/explanations` tells; None where it does not answer.
        gradients: whether the model's format has them.
    """
    settings = task.settings
    return Description(
        name=name,
        version=version,
        mode=settings.mode,
        save_mode=settings.save_mode,
        dtype=computes_in(settings.save_mode, settings.dtype),
        labels=list(task.labels),
        limits=Limits(task.longest, settings.max_rows, task.longest_text, task.truncates),
        inputs=TypeAdapter(task.inputs).json_schema(schema_generator=PlainSchema),
        results=TypeAdapter(task.results).json_schema(schema_generator=PlainSchema),
        parameters=schemas_of(task.parameters, task.defaults),
        explanation=explanation_schemas(account.usual_method, gradients) if account else {},
        sample=task.sample,
        settings=settings,
        architecture=_architecture(task),
    )


def schemas_of(kind: type[Parameters], defaults: Schema) -> dict[str, Any]:
    """Return the JSON schema of each parameter by name, with what is given as its default."""
    found = kind.model_json_schema(by_alias=False, schema_generator=PlainSchema)["properties"]
    return {
        name: {**schema, "default": defaults[name]} if name in defaults else schema
        for name, schema in found.items()
    }


def explanation_schemas(usual: str, gradients: bool) -> dict[str, Any]:
    """Return the JSON schema of each explanation parameter by name.

    Args:
        usual: the mode's usual method.
        gradients: whether the model's format has them; else fewer methods work.
    """
    methods = [
        name
        for name in files_of("explainers")
        if gradients or not explainer_class(name).needs_gradients
    ]
    default = usual if gradients else WITHOUT_GRADIENTS
    method = {"enum": [*methods, None], "default": default}
    return {**schemas_of(ExplanationParameters, {}), "method": method}


def _architecture(task: BaseTask[Any, Any]) -> str:
    config = task.checkpoint.config
    return str(next(iter(config.architectures or ()), config.model_type))
