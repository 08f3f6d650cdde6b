"""The root cause of a failed job, from its logs."""
