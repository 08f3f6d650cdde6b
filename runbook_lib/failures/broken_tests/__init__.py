"""Notebook 06-broken-tests."""
