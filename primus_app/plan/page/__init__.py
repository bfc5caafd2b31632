"""The plan as one self-contained HTML page with pictures."""
