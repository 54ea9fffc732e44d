"""Settings of all tests, and their tiers.

A test marked ``slow`` runs in the slow tier and all others in the quick one; properties run in
both. Tests marked ``real`` need models that `make real` fetches: they run in its tier, and those
that are not slow in ``all`` as well.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A guard against what hangs, and no measure: a busy machine takes many times as long. No option of
# pyproject.toml, which serves those too who run the notebooks without pytest-timeout.
os.environ.setdefault("PYTEST_TIMEOUT", "1200")
# The models are tiny: threads only wait for one another. Set before torch is imported anywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Where there are more all the same, those that wait sleep: on a busy machine, spinning would take
# the others' time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# No test asks a hub for anything; without this, a name that is no model would be looked for there
# until it gives up.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# pytest-xdist hands its terminal's width to its workers; what is printed in a test goes to no
# terminal.
os.environ.pop("COLUMNS", None)
# A shell's background job ignores Ctrl-C, and so would every command that a test starts and
# interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: What each tier leaves out, by file; with pytest-xdist every worker finds the same.
LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=("quick", "slow", "real", "all"),
        default="quick",
        help="which tests to run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Properties are tried on many examples in the slow tier, by the seed that make prints, else
    on the same few.
    """
    # A busy machine is no failure, so neither an example's time nor that of drawing it is.
    unhurried: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("quick", derandomize=True, max_examples=30, **unhurried)
    settings.register_profile("slow", max_examples=200, print_blob=True, **unhurried)
    settings.load_profile("slow" if config.getoption("--tier") == "slow" else "quick")


@pytest.hookimpl(trylast=True)  # Hypothesis marks its tests in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    if tier == "all":
        # a long one that comes last keeps the other workers waiting
        items.sort(key=lambda item: not takes_long(item))
    kept = [item for item in items if tier in tiers(item)]
    left = list(set(items) - set(kept))
    config.hook.pytest_deselected(items=left)
    config.stash[LEFT_OUT] = Counter(item.nodeid.partition("::")[0] for item in left)
    items[:] = kept


def tiers(item: pytest.Item) -> set[str]:
    """The tiers that a test runs in."""
    names = ("slow", "real", "hypothesis", "deep")
    slow, real, hypothesis, deep = (item.get_closest_marker(name) is not None for name in names)
    if deep:
        return {"slow"}
    if real:
        return {"real"} if slow else {"real", "all"}
    return {"all", "slow" if slow else "quick"} | ({"slow"} if hypothesis else set())


def takes_long(item: pytest.Item) -> bool:
    """Slow tests, notebooks and what is done in a browser."""
    return (
        "slow" in item.keywords
        or item.path.suffix == ".ipynb"
        or item.path.parent.name == "browser"
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(
            session.config.stash.get(LEFT_OUT, Counter())
        )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if "left_out" in getattr(node, "workeroutput", {}):
        node.config.stash[LEFT_OUT] = Counter(node.workeroutput["left_out"])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    left, tier = config.stash.get(LEFT_OUT, Counter[str]()), config.getoption("--tier")
    if not left:
        return
    terminalreporter.section(f"the {tier} tier left out {left.total()} tests of the others")
    for name, count in sorted(left.items()):
        terminalreporter.line(f"{count:6} {name}")
    terminalreporter.line(
        "make test-all runs the quick and the slow tier, make real the real one, make test-browser"
        " the browser"
    )


@pytest.fixture(autouse=True)
def own_parts() -> Iterator[None]:
    """Forget the triggers and formulators that a test defines."""
    # with which every built-in one is entered
    from dragin_lab.catalog.by_name import FORMULATORS, TRIGGERS

    kept = dict(TRIGGERS._parts), dict(FORMULATORS._parts)
    yield
    TRIGGERS._parts, FORMULATORS._parts = kept


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    """``dragin-lab`` in this process (``command.Command``)."""
    from command import Command

    return Command(capsys)
