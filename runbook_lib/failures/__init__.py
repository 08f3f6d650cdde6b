"""Failures of CI: from logs to root causes; issues, quarantine, re-enabling."""
