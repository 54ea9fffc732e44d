"""What several commands share: names with a hint, and the option ``--debug``."""

from __future__ import annotations

import difflib
from typing import Any

import click


class Name(click.Choice):
    """A choice of names that also says which one was probably meant, and lists them on one line."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"Choose one of {', '.join(str(choice) for choice in self.choices)}."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            near = difflib.get_close_matches(str(value), [str(choice) for choice in self.choices], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.BadParameter(error.message + hint, ctx=ctx, param=param) from None


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error, and libraries' warnings."
)
