"""OpenAPI documents, made from the types that the tasks and protocols themselves have."""

from scripts.kit.openapi.document import DOCUMENTS, document, write

__all__ = ["DOCUMENTS", "document", "write"]
