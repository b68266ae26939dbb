"""Functions of the product that do more in a test, before or after what they do."""

import functools
from collections.abc import Callable
from typing import Any


def around(
    owner: Any, name: str, *, before: Any = None, after: Any = None,
    replace: Callable[[Any, str, Any], None] = setattr,
) -> None:  # fmt: skip
    """Call `before` with the arguments of a function, `after` with its result and them.

    `replace` sets the attribute; a test gives `monkeypatch.setattr`.
    """
    real = getattr(owner, name)

    @functools.wraps(real)
    def wrapped(*given: Any, **named: Any) -> Any:
        if before is not None:
            before(*given, **named)
        result = real(*given, **named)
        if after is not None:
            after(result, *given, **named)
        return result

    replace(owner, name, wrapped)
