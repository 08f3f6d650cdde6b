"""The HTML pages of records."""
