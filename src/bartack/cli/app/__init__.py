"""The frame of the command line: parsing, terminal, exit codes, completion."""
