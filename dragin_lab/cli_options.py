"""What several commands share: names with a hint, the option ``--debug``, the progress of a download."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on a terminal; gives the function that is told the bytes that are there, and of how many."""
    from tqdm.auto import tqdm

    with tqdm(desc=name, unit="B", unit_scale=True, disable=None, leave=False) as bar:  # None: only on a terminal

        def advance(have: int, total: int | None) -> None:
            if have < bar.n or not bar.n:  # it begins, maybe where an earlier download ended, which is no rate of this
                bar.reset(total)
                bar.n = bar.initial = bar.last_print_n = have
            bar.update(have - bar.n)

        yield advance
