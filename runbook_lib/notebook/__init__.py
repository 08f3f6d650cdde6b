"""The beginning of a notebook's run, and the start page."""
