"""What a run contributes to its record, and what people and forms are told from records."""
