"""Records of runs: the archive in git, run.json, its verification, and the report."""
