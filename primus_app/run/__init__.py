"""The run directory: who may use it, what was asked for, what happened; all of it plain files."""
