"""Records of runs: statement, hash chain, archive, verification and HTML pages."""
