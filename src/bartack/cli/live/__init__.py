"""Views of an active run, and the questions that it asks on a terminal."""
