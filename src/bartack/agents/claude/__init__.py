"""Claude Code as an agent, over its control channel. Start in ``_agent.py``; a conversation is in ``_dialect.py``."""
