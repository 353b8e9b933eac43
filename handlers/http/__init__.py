"""HTTP requests and responses: bodies, content types, compression, events."""
