"""The lineage service: its store, its search, its HTTP interface.

Knows the graph of patterns, and nothing of outboxes or hooks. Start with ``_store.py``, then ``_write.py`` (how an event changes
the graph), ``_graph.py`` (how it is read) and ``_http.py`` (how it is served).
"""
