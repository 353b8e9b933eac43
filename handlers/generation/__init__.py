"""Text generation: prompts, sampling parameters, stop strings, streaming."""
