"""The outside as a bump sees it, and the conditions that it can make true there."""
