"""Commands that show runs and change nothing."""
