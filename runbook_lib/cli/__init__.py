"""The command `runbook`."""
