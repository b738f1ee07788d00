"""Every error says what is wrong, then after an empty line how to mend it.

Errors are built by named constructors, so that one mistake has one message wherever it is made.
"""

from __future__ import annotations


class EvenkeelError(Exception):
    """Base of everything this library raises on purpose."""

    @classmethod
    def _make(cls, problem: str, hint: str) -> EvenkeelError:
        return cls(f"{problem}\n\nHint: {hint}")
