"""No step draws its plots."""

from undrawn import nothing_is_drawn

__all__ = ["nothing_is_drawn"]
