"""OpenAPI documents, generated from the types of the tasks and protocols."""

from scripts.kit.openapi.document import DOCUMENTS, document, write
from scripts.kit.openapi.routes import all_routes

__all__ = ["DOCUMENTS", "all_routes", "document", "write"]
