"""Pages written by hand state no figure that is not the code's own: a limit, a default, a count of what is there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import dragin_lab as dl
from dragin_lab.cli import app
from dragin_lab.data import web
from dragin_lab.data.datasets import BENCHMARKS, template
from dragin_lab.data.tabular import LONGEST_LINE
from dragin_lab.retrieval import elasticsearch, milvus, sources
from dragin_lab.retrieval.answers import TIMEOUT
from dragin_lab.run import cache, intervals
from dragin_lab.run.sweeps import BLOCK
from dragin_lab.study.conditions import FEW
from dragin_lab.trace import file as trace_file
from dragin_lab.views import attention, canvas, replays, timelines
from dragin_lab.widgets import explorer
from tools.pages import runs

DOCS = Path(__file__).parents[2] / "docs"
#: Pages whose figures a script writes, a test of their own compares, or parity with the released code.
ELSEWHERE = {
    "almanac.md", "explanation/thresholds.md", "how-to/compare.md", "measured.md", "paper-and-code.md",
    "performance.md", "real-model.md", "reference-behaviour.md", "tutorials/first-question.md", "triggers.md",
}  # fmt: skip
#: What holds a digit and is no figure.
NO_FIGURE = re.compile(
    r"<!-- [\w-]+: written by .*?<!-- end -->|<!-- figures -->.*?<!-- end -->|```.*?```|^    .*?$|^\|.*?$|^#.*?$"
    r"|`[^`]*`|\]\([^)]*\)|<[^>]*>|^ *\d\. |95 %|127\.0\.0\.1|float\d+|UTF-8|CRC-32|MD5|SHA-256|safetensors"
    r"|Tables? \d( (and|to) \d)?|Eq\.\s+\d|Appendix \w|Prompt D\.3|part \d|§\s*[\d.]+|\(\d{4}\)|ACL 2024|notebook 10"
    r"|F1|BM25|urllib3|layer 12|2Wiki\w*|Search-R1|Llama[\w.-]*|SmolLM2[\w.-]*|LFM2|Qwen3[\w-]*"
    r"|Granite 4|Falcon-H1|Zamba2|Mamba2|Phi-4"
    r"|Python 3\.11|count from 0|Elasticsearch \d|status \d|sum to 1|length 1",
    re.MULTILINE | re.DOTALL,
)
MIB, GIB = 2**20, 2**30


def default(function: object, name: str) -> object:
    return inspect.signature(function).parameters[name].default  # type: ignore[arg-type]


def claims() -> dict[str, list[str]]:
    """By page what it says of figures, with the figures filled in from the code."""
    call, slider = (
        dl.method("flare-instruct").trigger,
        (Path(explorer.__file__).parent / "tuning.js").read_text(encoding="utf-8"),
    )
    pace = re.findall(r"PACE = (\d+); // milliseconds", slider)[0]
    pauses = [web.PAUSE * 2**attempt for attempt in range(1, web.TRIES - 1)]
    sets = [len(template(name).exemplars) for name in BENCHMARKS]
    return {
        "views.md": [
            f"at most {canvas.MAX_TOKENS:,} tokens one by one, {canvas.MAX_STEPS} steps of an episode "
            f"({timelines.MAX_STEPS} in the timeline), and {attention.MAX_WORDS} words on an axis",
        ],
        "widgets.md": [
            f"`dl.explore` shows at most {explorer.TOKENS:,} tokens",
            f"lists {replays.MAX_ROWS} of them",
            f"at most once in {pace} ms",
        ],
        "corpora.md": [
            f"a passage of more than {sources.LONGEST:,} characters, and a line of more than {LONGEST_LINE // MIB} MiB",
            f"k1 {default(dl.BM25, 'k1')}, b {default(dl.BM25, 'b')} and tie breaker {default(dl.BM25, 'tie_breaker')}",
        ],
        "how-to/served.md": ["r = 1 − Σp", "drawn at temperature 1"],
    "search-clusters.md": [
            f"ends after {TIMEOUT} seconds at the latest",
            f"at most {milvus.LONGEST:,} bytes, a search at most {milvus.MOST_HITS:,} passages",
            "With a tie breaker c of 0 to 1",
            f"{elasticsearch.GLANCES} of them, evenly spaced",
            f"answered by {', '.join(map(str, web.PASSING[:-1]))} or {web.PASSING[-1]} are sent again",
            f"after pauses of {pauses[0]:g}, {pauses[1]:g} and {pauses[2]:g} seconds, or as the server's "
            f"`Retry-After` says (at most {web.LONGEST_PAUSE})",
        ],
        "explanation/runs.md": [
            f"**Format {trace_file.VERSION}** has",
            f"larger than {trace_file.LARGEST // GIB} GiB (a slim one: {trace_file.LARGEST_SLIM // MIB} MiB unpacked)",
            f"{cache.LIMIT // GIB} GiB in memory and {cache.DISK_LIMIT // GIB} GiB on disk by default",
            f"tries all values on {BLOCK} questions before the next {BLOCK}",
            f"{intervals.SAMPLES:,} draws",
        ],
        "how-to/own-corpus.md": [f"about {sources.WORDS} words", f"after {TIMEOUT} seconds at the latest"],
        "how-to/own-model.md": [f"in a run of more than {FEW} questions"],
        "methods.md": [f"`call_bonus`, {call.call_bonus}", f"`call_pause`, {call.call_pause}"],
        "notebooks.md": [
            f"The executed copies answer {runs.QUESTIONS} questions",
            f"answers {runs.QUESTIONS} questions, {runs.QUESTIONS // len(BENCHMARKS)} of each benchmark's test split",
        ],
        "reference/command-line.md": [
            f"{app.DONE} done, {app.FAILED} something failed on the way, {app.USAGE} wrong usage or input, "
            f"{app.INTERRUPTED} interrupted",
        ],
        "data.md": [f"({', '.join(map(str, sets))})"],
    }  # fmt: skip


#: What other people's papers, programs and files say, as the pages quote it.
QUOTED = {
    "corpora.md": [
        "without Lucene's 33 stop words", "for 749 of 749 real questions", "lengths of fields above 40 words",
        "4 bytes times the dimension",
    ],
    "methods.md": [
        "lm-polygraph 0.7.0", "order 0.5, temperature 2", "1 − (2/π) arccos(Σ √p / √V), temperature 2",
        "1 − log c_t, c_t = α p_t + (1 − α) a c_(t−1)", "a(t, t−1)", "token t−1", "α = 0.5",
        "arXiv 2606.29959",
    ],
    "how-to/served.md": ["r = 1 − Σp", "drawn at temperature 1"],
    "search-clusters.md": ["They ask for 1,000 hits", "tie breaker 0.5"],
    "explanation/runs.md": [
        "well under 2 KB each", "the paper's are 16 times FL-RAG's retrievals", "Wilson's where a value is 0 or 1",
        "as counts of what is not 0",
    ],
}  # fmt: skip
PAGES = sorted(
    path for path in DOCS.rglob("*.md")
    if not path.is_relative_to(DOCS / "gallery") and path.relative_to(DOCS).as_posix() not in ELSEWHERE
)  # fmt: skip


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_figure_on_a_page_is_the_codes_own(path: Path) -> None:
    name = path.relative_to(DOCS).as_posix()
    text = " ".join(path.read_text(encoding="utf-8").split())
    prose = path.read_text(encoding="utf-8")
    for claim in claims().get(name, []):
        assert claim in text, claim
        prose = re.sub(r"\s+".join(map(re.escape, claim.split())), "", prose)
    for quoted in QUOTED.get(name, []):
        prose = re.sub(r"\s+".join(map(re.escape, quoted.split())), "", prose)
    assert re.findall(r"[^\n]*\d[^\n]*", NO_FIGURE.sub("", prose)) == []
