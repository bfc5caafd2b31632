"""Configuration files of other programs told in our own settings: what became of each key, one module a program."""
