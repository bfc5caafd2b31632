"""The search for the best layout of a model on given devices."""
