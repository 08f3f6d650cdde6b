"""Image references and tags, changes in a new image, and the drivers that support it."""
