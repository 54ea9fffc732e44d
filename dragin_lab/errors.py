"""Errors that are a message to the user: what was given, what the limit is, what to do next."""

from __future__ import annotations

from dragin_lab.text import hide_secrets


class DraginLabError(Exception):
    """Base of every error that the command line prints without a traceback.

    ``begun``: whether the work had begun; what was done before is kept.
    """

    def __init__(self, *said: object, begun: bool = False) -> None:
        super().__init__(*said)
        self.begun = begun


class SettingError(DraginLabError, ValueError):
    """A setting outside its range, a method or part that does not exist, a senseless combination;
    a trigger, formulator or loop of one's own that fails, or returns what cannot be used.
    """


class ModelError(DraginLabError):
    """A model or tokenizer that cannot be loaded or captured; a model server that cannot be
    reached or fails, or that is not what it should be.
    """


class DataError(DraginLabError):
    """Questions, passages or a retriever that are missing, fail, lack a field or are not what they
    should be; a file that cannot be fetched or written.
    """


class RunError(DraginLabError):
    """A run, or the cluster that answers it, that cannot be read, written or gone on with."""


class TraceFileError(DraginLabError):
    """A file that is not a readable trace, or a trace that does not hold what is asked of it."""


class MissingPackageError(DraginLabError, ImportError):
    """An optional package that is not installed; names it and how to get it."""


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
