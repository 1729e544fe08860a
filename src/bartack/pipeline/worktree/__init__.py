"""Lanes side by side: git worktrees and what becomes of the work in them."""
