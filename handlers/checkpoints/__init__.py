"""Reading a checkpoint: config, tokenizer, labels, model head, device placement and dtype."""
