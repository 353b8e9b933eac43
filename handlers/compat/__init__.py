"""Private and undocumented parts of other packages, in functions that say when they break.

A module is named for the package that it knows. Nothing else in the kit imports a private name of
another package, writes to its modules and classes, or reads its messages:
`tests/test_foreign_internals.py` checks that, and `tests/handlers/compat` tells which part a new
version has changed. The modules import nothing of the kit, because everything else imports them.
"""
