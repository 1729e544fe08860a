"""Runs that are given to the node of the user."""
