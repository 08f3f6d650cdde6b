"""The import of Renovate's custom managers: its settings, its expressions translated to Python, and their matches."""
