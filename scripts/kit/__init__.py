"""What the command lines share: places, downloads, archives, servers and the demo models."""
