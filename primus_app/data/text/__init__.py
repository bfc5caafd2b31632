"""Text from files as a corpus: which files, which documents in them, and their tokens."""
