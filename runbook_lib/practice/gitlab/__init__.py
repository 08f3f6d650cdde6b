"""The GitLab of the practice environment."""
