"""Commands for hooks, the daemon and the lineage service."""
