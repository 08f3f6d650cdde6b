"""The tags of each family of images."""
