"""What several steps share: the bump's branch, its proposal, rounds and readiness."""
