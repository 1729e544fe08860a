"""The canonical form of a program."""
