"""The forge of the practice environment."""
