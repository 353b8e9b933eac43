"""OpenAPI documents, generated from the types of the tasks and protocols."""

from hf_serve.scripts.openapi.document import DOCUMENTS, document, write
from hf_serve.scripts.openapi.operations import all_routes

__all__ = ["DOCUMENTS", "all_routes", "document", "write"]
