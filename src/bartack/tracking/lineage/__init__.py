"""The lineage service: its store, its search, its HTTP interface."""
