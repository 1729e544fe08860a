"""From a checked program to Python modules."""
