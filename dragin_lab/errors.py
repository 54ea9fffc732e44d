"""Errors that are a message to the user: what was given, what the limit is, what to do next."""

from __future__ import annotations

from dragin_lab.text import hide_secrets


class DraginLabError(Exception):
    """Base of every error that the command line prints without a traceback."""


class ModelError(DraginLabError):
    """A model or tokenizer that cannot be loaded or cannot be captured."""


class ModelServerError(ModelError):
    """A model server that cannot be reached or fails, or that is not what it should be."""


class DataError(DraginLabError):
    """A source of questions or passages that is missing, is not what it should be, or lacks a
    field.
    """


class CorpusError(DataError):
    """A corpus that cannot be read; names the file and the row."""


class SearchServerError(DraginLabError):
    """A search server that cannot be reached or fails, or an index there that is not what it
    should be.
    """


class TraceFileError(DraginLabError):
    """A file that is not a readable trace."""


class SettingError(DraginLabError, ValueError):
    """A setting outside its range, a method or part that does not exist, a senseless
    combination.
    """


class TriggerError(DraginLabError, ValueError):
    """A custom trigger or formulator failed, or returned something that cannot be used; names it
    and the token.
    """


class MissingPackageError(DraginLabError, ImportError):
    """An optional package that is not installed; names it and how to get it."""


class ViewError(DraginLabError):
    """A view that cannot be drawn, or a page or picture that cannot be written."""


def explain(interrupt: KeyboardInterrupt, message: str) -> None:
    """Say what an interrupt left behind, in place of what was said before; a notebook shows it
    without a traceback.
    """
    interrupt.__notes__ = [message]
    interrupt._render_traceback_ = lambda: [f"KeyboardInterrupt: {message}"]  # type: ignore[attr-defined]  # IPython's hook


def describe_error(error: Exception) -> str:
    """Our own errors are sentences for people; others are named, and may hold an address with a
    password, which is left out.
    """
    if isinstance(error, DraginLabError):
        return str(error)
    return hide_secrets(f"{type(error).__name__}: {error}")
