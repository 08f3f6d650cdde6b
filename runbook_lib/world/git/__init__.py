"""Checkouts, the git command and blobs."""
