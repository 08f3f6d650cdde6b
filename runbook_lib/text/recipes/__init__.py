"""Rows of test recipes: read, quarantined and re-enabled."""
