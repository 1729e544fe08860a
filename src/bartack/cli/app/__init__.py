"""The frame of the command line: command table, error reports, terminal, exit codes, completion."""
