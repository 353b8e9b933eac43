"""The benchmark of image classification."""
