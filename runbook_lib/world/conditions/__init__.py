"""Conditions: what shall hold outside, how to read whether it does, and how to make it true."""
