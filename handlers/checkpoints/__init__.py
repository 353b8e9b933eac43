"""Reading a checkpoint: config, tokenizer, labels, head, placement, dtype."""
