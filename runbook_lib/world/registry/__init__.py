"""OCI registries."""
