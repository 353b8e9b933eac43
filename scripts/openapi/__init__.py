"""OpenAPI documents, generated from the types of the tasks and protocols."""

from scripts.openapi.document import DOCUMENTS, document, write

__all__ = ["DOCUMENTS", "document", "write"]
