"""Code shared by the command-line scripts: downloads, archives, servers and demo models."""
