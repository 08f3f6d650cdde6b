"""Pin sites, the plan of a bump, and the check that all pins agree."""
