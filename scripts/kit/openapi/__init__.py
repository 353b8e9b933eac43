"""OpenAPI documents, generated from the types of the tasks and protocols."""

from scripts.kit.openapi.document import DOCUMENTS, document, write

__all__ = ["DOCUMENTS", "document", "write"]
