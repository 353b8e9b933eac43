"""How people ask: one file a wire format, each with one class `Protocol`."""
