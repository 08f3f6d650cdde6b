"""Clients of the services that a bump talks to."""
