"""The image registry of the practice environment."""
