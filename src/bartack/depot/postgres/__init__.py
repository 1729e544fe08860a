"""Runs in a PostgreSQL database: the only package that imports ``psycopg``, and only when such a run is used.

The truth about a run is in the database: its journal, the same lines byte for byte as in a file, one row for each commit; its
large values; and who owns it. Every append proves the ownership in the statement that writes (function ``append`` in
``schema/0001.sql``), so a process that has lost a run writes nothing, however late it wakes up. The largest values may be objects
of an object store, which the database names (``_objects.py``).

Read ``schema/0001.sql`` first (tables, and the functions that decide), then ``_carrier.py`` (how commits get there), ``_lease.py``
(how long an owner may continue without an answer) and ``_run.py`` (a run, as everything above sees it).
"""
