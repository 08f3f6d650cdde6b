"""Pure functions from text to text: edits, YAML spans, recipe rows, Dockerfiles, Markdown and redaction."""
