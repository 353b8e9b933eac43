"""Private and undocumented parts of the packages that hosts need alone.

They are not in `handlers/compat`, because hosts run archives that were packed without it.
"""
