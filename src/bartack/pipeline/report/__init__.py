"""What a run has done, for the person who takes its work over: records in, one report out, and how it is written."""
