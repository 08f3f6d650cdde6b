"""From the logs of a failed job to its root cause."""
