"""Export of a checkpoint to another format, and the comparison of both."""
