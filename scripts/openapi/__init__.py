"""OpenAPI documents, generated from the types of the tasks and protocols."""

from scripts.openapi.document import DOCUMENTS, document, write
from scripts.openapi.operations import all_routes

__all__ = ["DOCUMENTS", "all_routes", "document", "write"]
