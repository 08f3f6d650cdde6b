"""The CI of the practice environment."""
