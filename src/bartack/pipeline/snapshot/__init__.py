"""Snapshots of a workspace: which files count, and the id of what they hold."""
