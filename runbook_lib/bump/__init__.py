"""The bump: its branch and pins, pull request, CI run, rounds, readiness, and what follows the merge."""
