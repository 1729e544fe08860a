"""Commands for plugins of Claude Code: ``_plugin.py``."""
