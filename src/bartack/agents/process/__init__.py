"""One process of an agent in the loop of its owner: input, output, signs of life. Start reading with ``process.py``."""
