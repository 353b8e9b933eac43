"""One TorchServe handler for every Hugging Face task; goes into each archive whole."""
