"""Tasks inside an image, on this machine or on a cluster."""
