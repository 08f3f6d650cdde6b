"""The practice environment: a checkout, a forge, a GitLab, a registry and a CI that misbehaves, on this machine."""
