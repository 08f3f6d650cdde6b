"""GitHub's REST API, and what its answers mean."""
