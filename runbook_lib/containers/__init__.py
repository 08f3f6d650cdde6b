"""Container engines, image builds, and work inside an image."""
