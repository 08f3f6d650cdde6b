"""GitLab's REST API, and what its answers mean."""
