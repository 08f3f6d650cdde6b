"""Pure functions from text to text: edits, YAML spans, Dockerfiles, CODEOWNERS, Markdown and redaction."""
