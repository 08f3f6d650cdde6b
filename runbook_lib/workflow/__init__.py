"""Code shared by several steps: the bump's branch, its proposal, rounds and readiness."""
