"""What a run leaves: statement, hash chain, archive, verification and HTML pages."""
