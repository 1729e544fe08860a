"""Supervisors and monitors: which children there are and when one is started again."""
