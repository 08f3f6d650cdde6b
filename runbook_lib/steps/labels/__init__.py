"""Labels of a pull request."""
