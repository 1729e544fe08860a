"""One call of an agent: attempts, time limits, tools, the answer. Common to every kind; start with ``_conversation.py``."""
