"""Live controls for a notebook: look into a trace, tune a threshold, ask and watch, compare (docs/widgets.md).

Everything they show is also available as a function: ``trace.heatmap()`` for ``explore``, ``views.replayed`` for
``tuner``, ``lab.ask`` and ``lab.stream`` for ``lab.explore``, ``views.side_by_side`` and ``Trace.diff`` for
``compare``. They need anywidget (``pip install 'dragin-lab[notebooks]'``), which is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab.almanac.facts import Labelled
from dragin_lab.errors import MissingPackageError
from dragin_lab.trace.branches import Branches
from dragin_lab.trace.trace import Question, Trace
from dragin_lab.views.frame import open_trace

if TYPE_CHECKING:
    from dragin_lab.run.lab import Lab
    from dragin_lab.study.runs import Runs
    from dragin_lab.widgets.asking import AskLive
    from dragin_lab.widgets.branching import ExploreBranches
    from dragin_lab.widgets.browsing import Browse
    from dragin_lab.widgets.comparing import Compare
    from dragin_lab.widgets.explorer import Explore
    from dragin_lab.widgets.tuning import Tuner

__all__ = ["browse", "compare", "explore", "tuner"]


def explore(
    trace: Trace | Branches | str | Path,
    lab: Lab | None = None,
    *,
    branch: int = 0,
    step: int | None = None,
    text: str = "",
    token: int | None = None,
) -> Explore | ExploreBranches:
    """Step through an episode token by token, by mouse or keyboard, and see everything known about each token.

    It opens at ``step``, its ``text`` ("draft" or "continuation") and ``token``, counted from 1; default the first hit.
    With the ``lab`` that made the trace, another token, query, set of passages or decision can be chosen, and the
    episode goes on from there (``Lab.branch``); ``.tree`` has all branches. Of a tree, ``branch`` is the number of the
    trace that is shown first. ``save(path)`` writes it as a page that opens offline. A path that holds no readable
    trace gives its message in place. Without widgets: ``trace.heatmap()``, ``lab.branch``.
    Raises ``MissingPackageError`` without anywidget, ``SettingError`` for a place that does not exist.
    """
    _need_anywidget("explore", "trace.heatmap()")
    from dragin_lab.widgets.explorer import Explore

    if lab is None and not isinstance(trace, Branches):
        return Explore(trace, step=step, text=text, token=token)
    from dragin_lab.widgets.branching import ExploreBranches

    tree = trace if isinstance(trace, Branches) else Branches.of(open_trace(trace))
    return ExploreBranches(tree, lab, branch=branch, step=step, text=text, token=token)


def tuner(
    traces: Trace | str | Path | Iterable[Trace | str | Path],
    labels: Iterable[Labelled] | None = None,
    *,
    lab: Lab | None = None,
    nlp: Any = None,
) -> Tuner:
    """Sliders over stored traces: what would fire, what would be asked, how many retrievals, without the model.

    ``traces`` are of one method. ``labels`` (``facts.load_labels``) give precision and recall against the ground
    truth. With the ``lab`` that made the traces (``lab.tune``) a button runs its model for the chosen values. Paths
    that hold no readable trace are named in place. Without widgets: ``views.replayed``.
    Raises ``MissingPackageError`` without anywidget, ``SettingError`` for traces of several methods.
    """
    _need_anywidget("tuner", "views.replayed(traces, threshold=…)")
    from dragin_lab.widgets.tuning import Tuner

    return Tuner(traces, labels, lab, nlp=nlp)


def open_live(lab: Lab, question: str | Question, method: str, others: Mapping[str, Lab], **settings: Any) -> AskLive:
    """``Lab.explore``."""
    _need_anywidget("lab.explore", "lab.ask(question)")
    from dragin_lab.widgets.asking import AskLive

    return AskLive(lab, question, method, others=others, **settings)


def browse(runs: Runs | str | Path | Iterable[str | Path]) -> Browse:
    """Every question of some runs as a table to search and filter, and two traces side by side.

    ``runs`` are ``Runs`` or what ``Runs.load`` takes; ``save(path)`` writes the same as one page that opens offline.
    Without widgets: ``views.browse_page(runs)``.
    Raises ``MissingPackageError`` without anywidget, ``RunError`` for a folder without runs.
    """
    _need_anywidget("browse", "views.browse_page(runs)")
    from dragin_lab.study.runs import Runs as Loaded
    from dragin_lab.widgets.browsing import Browse

    return Browse(runs if isinstance(runs, Loaded) else Loaded.load(runs))


def compare(a: Trace | str | Path, b: Trace | str | Path, *, labels: tuple[str, str] | None = None) -> Compare:
    """Two traces of one question with their differences marked, to step through.

    ``labels`` name them. A path that holds no readable trace gives its message in place. Without widgets:
    ``views.side_by_side([a, b])`` and ``a.diff(b)``.
    Raises ``MissingPackageError`` without anywidget, ``SettingError`` for traces of different questions.
    """
    _need_anywidget("compare", "views.side_by_side([a, b])")
    from dragin_lab.widgets.comparing import Compare

    return Compare(a, b, labels=labels)


def _need_anywidget(name: str, instead: str) -> None:
    try:
        import anywidget  # noqa: F401 - only asked whether it is there
    except ImportError as error:
        raise MissingPackageError(
            f"{name} needs anywidget, which is not installed; run pip install 'dragin-lab[notebooks]', "
            f"or use {instead}, which needs no widgets"
        ) from error
