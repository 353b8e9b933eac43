"""Texts that demo models are trained and evaluated on: from grammars, or written by hand."""
