"""The beginning of a notebook's run, papermill's engine, the form with its cards, and the start page."""
