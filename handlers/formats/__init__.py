"""How weights lie on disk: one file a `save_mode`, each with `load`."""
