"""Image references and tags, what a new image changes, and the drivers that run it."""
