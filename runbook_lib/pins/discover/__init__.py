"""References to images in a repository whose pins nobody has declared."""
