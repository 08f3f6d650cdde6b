"""References to images in a repository without declared pins."""
