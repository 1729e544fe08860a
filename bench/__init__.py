"""How fast Bartack is, against the floor of the machine and against its peers.

``python -m bench`` runs every module here whose name has no underscore; ``python -m bench.journal`` runs one. Read
``_harness.py`` for how a comparison is made, ``journal.py`` for one.
"""
