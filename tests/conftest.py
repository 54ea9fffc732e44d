"""Settings of all tests, and their tiers: a test marked ``slow`` runs in the slow tier, all others in the quick one."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

import pytest

# The models are tiny: threads only wait for one another. Set before torch is imported anywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell's background job ignores Ctrl-C, and so would every command that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: What each tier leaves out, by file; with pytest-xdist every worker finds the same.
LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=("quick", "slow", "all"), default="quick", help="which tests to run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    if tier == "all":
        return
    kept = [item for item in items if (item.get_closest_marker("slow") is not None) == (tier == "slow")]
    left = [item for item in items if item not in set(kept)]
    config.hook.pytest_deselected(items=left)
    config.stash[LEFT_OUT] = Counter(item.nodeid.partition("::")[0] for item in left)
    items[:] = kept


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash.get(LEFT_OUT, Counter()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if "left_out" in getattr(node, "workeroutput", {}):
        node.config.stash[LEFT_OUT] = Counter(node.workeroutput["left_out"])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    left, tier = config.stash.get(LEFT_OUT, Counter[str]()), config.getoption("--tier")
    if not left:
        return
    other = "slow" if tier == "quick" else "quick"
    terminalreporter.section(f"the {tier} tier left out {left.total()} tests of the {other} one")
    for name, count in sorted(left.items()):
        terminalreporter.line(f"{count:6} {name}")
    terminalreporter.line("make test-all runs both tiers, make test-browser the browser")
