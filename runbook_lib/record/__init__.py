"""Records of runs: the recorder, the archive in git, run.json, verification, report, decisions and status."""
