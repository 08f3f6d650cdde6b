"""The practice environment: a checkout, a forge, a second CI, a registry and a CI with failures, on this machine."""
