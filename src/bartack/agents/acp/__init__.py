"""Programs that speak the Agent Client Protocol, version 1. Start with ``_dialect.py``; ``_agent.py`` starts the processes."""
