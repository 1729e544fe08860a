"""The scripted agent: answers from a file."""
