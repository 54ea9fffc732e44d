"""Methods that the views give: ``plot = Drawn()`` in a class says that it has one, and
``@draws(Class, "plot")`` above a function of the views gives it.

So a record knows no view, and a figure has one signature and one docstring.
"""

from __future__ import annotations

# as in typing, which takes long to import: the package's first import is light
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


#: Each imports some of the views, the lightest first: the root of the package, which alone names
#: them, puts its own here.
openers: list[Callable[[], None]] = []


class Drawn:
    """A method whose function stands in the views; they are imported when it is first asked for."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.home = owner
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        for open_views in openers:
            open_views()
            if vars(self.home)[self.name] is not self:  # the function has taken this one's place
                break
        else:
            raise AttributeError(f"no view gives {self.home.__name__}.{self.name}")
        drawing: Callable[..., Any] = getattr(owner if instance is None else instance, self.name)
        return drawing


def draws(owner: type, name: str = "") -> Callable[[F], F]:
    """The function as a method of a class too, under its own name or another."""

    def give(function: F) -> F:
        setattr(owner, name or function.__name__, function)
        return function

    return give
