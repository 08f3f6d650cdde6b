"""Rows of test recipes: read, quarantined, re-enabled and drafted."""
