"""The search for the change in an image that broke or slowed a test: first its tag, then its component."""
