"""Processes of this machine: what the system knows of them, their trees, control groups and locks."""
