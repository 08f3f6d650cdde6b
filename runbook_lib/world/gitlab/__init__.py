"""GitLab's REST API, and the interpretation of its replies."""
