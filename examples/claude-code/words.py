"""Words of a language."""


def plural(word: str) -> str:
    """The plural of a word."""
    return word + "s"
