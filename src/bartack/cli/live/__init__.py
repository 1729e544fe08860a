"""Views of an active run, and the questions that it asks on a terminal.

``_draw.py`` makes the lines of the live view, a pure function of what is known and of the size of the terminal; ``_board.py`` puts
them on the screen, also after the size has changed.
"""
