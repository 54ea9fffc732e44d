"""The four benchmarks of the paper, read from their original files, with the paper's prompt for
each.

Almanac's questions come with the package. Your own are rows (``questions``): JSON lines, CSV,
parquet, a DataFrame, a Hugging Face data set, with ``question``, ``answer`` (a text) or ``answers``
(any of which is right), and maybe ``id``.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from dragin_lab import almanac
from dragin_lab.checks import check_text, count, several, shown
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.data.benchmarks import BENCHMARKS, is_own, kind_of, read_benchmark, read_records
from dragin_lab.data.exemplars import PUBLISHED, load_exemplars
from dragin_lab.data.json_files import first_fields
from dragin_lab.data.questions import PLAIN, check_ids, read_questions
from dragin_lab.data.tabular import Fields
from dragin_lab.errors import DataError
from dragin_lab.files import as_path
from dragin_lab.text import compose
from dragin_lab.trace.trace import Question

#: The file of each benchmark's evaluation questions, as released (reference-behaviour §6, "Data").
FILES = {
    "2wikimultihopqa": "dev.json",
    "hotpotqa": "hotpot_dev_distractor_v1.json",
    "strategyqa": "strategyqa_train.json",
    "iirc": "dev.json",
}
#: What precedes the test question (reference-behaviour §1).
INSTRUCTIONS = {
    "hotpotqa": (
        "Answer the following question by reasoning step-by-step, following the example above.\n"
    ),
    "strategyqa": (
        "Following the examples above, answer the question by reasoning step-by-step.\n\n"
    ),
}


def load_questions(
    source: Any,
    limit: int | None = None,
    *,
    split: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    fields: Fields = None,
) -> list[Question]:
    """The questions of a benchmark, in the order of their file.

    Args:
        source: a benchmark's name (``BENCHMARKS``), looked for below ``DRAGIN_LAB_DATA`` (default
            ``data``);
            ``almanac/NAME`` for Almanac's; or a file, or a folder that holds the original file; or
            rows of questions (``questions.read_questions``).
        limit: take only this many from the start, as the authors do (reference-behaviour §6).
            split: Almanac's "train", "dev" or "test" (default); the real files hold one split each.
            sample: take this many at random instead, in the order of the file. The same ``seed``
            takes the same questions
            everywhere, and a larger sample contains every smaller one.
        fields: the names of the fields of rows of questions, where they differ:
            "question=q,answer=gold".

    Gold answers: 2WikiMultihopQA the answer, then the aliases and demonyms of its ``answer_id``
    (the DRAGIN authors leave demonyms out); IIRC each span, or the bare value without its unit;
    StrategyQA yes or no. IIRC questions without an answer are left out (reference-behaviour §6).

    Raises:
        DataError: the file, the record and the field that is wrong; an id that was used before; a
            name or split that
            does not exist.
        SettingError: a limit, sample or seed that is no such number.
    """
    limit = None if limit is None else count("limit", limit)
    sample = None if sample is None else count("sample", sample)
    seed = count("seed", seed, 0)
    split = None if split is None else check_text("split", split)
    if limit is not None and sample is not None:
        raise DataError(
            f"limit={limit} and sample={sample}: give one of them, the first so many or a random"
            " choice"
        )
    if is_own(source):
        questions = read_questions(source, fields, limit)
    elif fields is not None:
        raise DataError(
            f"fields={shown(fields)}: {source} has fields of its own; leave it out, or give rows of"
            " questions"
        )
    elif (kind := _almanac_kind(source)) is not None:
        questions = almanac.questions(kind, split or "test")[:limit]
    else:
        questions = check_ids(islice(read_benchmark(find_benchmark(source, split)), limit))
    if sample is None:
        return questions
    # The questions whose ids hash lowest under the seed, which depends on no generator's version,
    # in their order.
    ranked = sorted(questions, key=lambda q: hashlib.sha256(f"{seed} {q.id}".encode()).digest())
    chosen = {q.id for q in ranked[:sample]}
    return [q for q in questions if q.id in chosen]


def name_benchmark(source: str | Path, split: str | None = None) -> str:
    """Which benchmark a source is, judged by its first record; ``PLAIN`` for your own questions."""
    if is_own(source):
        return PLAIN
    return _almanac_kind(source) or str(kind_of(first_fields(find_benchmark(source, split))))


def gold_titles(source: str | Path) -> dict[str, tuple[str, ...]]:
    """Question id -> the titles of the passages that support its answer, as HotpotQA,
    2WikiMultihopQA and IIRC name them.

    Raises ``DataError`` where the file is missing or cannot be read; questions without such titles
    are left out.
    """
    return {id: titles for (id, _), titles in _read_titles(find_benchmark(source)).items()}


@cache
def _read_titles(path: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    """The titles that a file names for each question, by its id and text."""
    named = {}
    for _, record in read_records(path)[1]:
        if not isinstance(record, dict):
            continue
        for row in record.get("questions") or [record]:
            titles = _titles_of(row)
            id = row.get("_id") or row.get("qid")
            if titles and isinstance(id, str):
                text = str(row.get("question")).strip()
                named[compose(id), text] = titles
    return named


def _titles_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The titles in a question's record, each once; IIRC's "main" is the paragraph that was asked
    about.
    """
    titles: dict[str, None] = {}
    for fact in row.get("supporting_facts") or ():
        match fact:
            case [title, *_]:
                titles[compose(str(title))] = None
    for part in row.get("context") or ():
        match part:
            case {"passage": title} if title != "main":
                titles[compose(str(title))] = None
    return tuple(titles)


@cache
def _labelled_passages() -> dict[str, tuple[str, ...]]:
    """The passages that each of Almanac's questions needs, by its text."""
    needed = {}
    for name in BENCHMARKS:
        for split in ("train", "dev", "test"):
            for labelled in almanac.labels(name, split):
                needed[labelled.question.strip()] = tuple(fact.passage for fact in labelled.facts)
    return needed


def needed_passages(question: Question) -> tuple[str, ...]:
    """The ids or titles of the passages that a benchmark's question needs, as it labels them; none
    of another question.

    Almanac's are known by their text, the others by id and text, where their file lies in
    ``DRAGIN_LAB_DATA``.
    """
    text = question.text.strip()
    if labelled := _labelled_passages().get(text):
        return labelled
    for name in BENCHMARKS if question.id else ():
        path = data_folder() / name / FILES[name]
        if path.is_file() and (titles := _read_titles(path).get((question.id, text))):
            return titles
    return ()


def build_template(
    name: str, exemplars: Iterable[Exemplar] | str | Path | None = None
) -> PromptTemplate:
    """The paper's prompt for a benchmark: its instruction and how its answers are read
    (reference-behaviour §1, §6).

    ``name`` is a benchmark, ``almanac/NAME`` for Almanac's, or ``PLAIN`` for your own questions.
    ``exemplars`` are worked examples, or what ``load_exemplars`` takes, or ``published`` for the
    published set of this benchmark. By default: this package's own set for it, Almanac's examples
    for Almanac's, none for your own questions.

    Raises ``DataError`` for a name that does not exist, ``SettingError`` for exemplars that cannot
    be read.
    """
    kind = name.removeprefix("almanac/")
    if kind not in BENCHMARKS and name != PLAIN:
        raise DataError(f"benchmark {name!r} does not exist; one of {', '.join(BENCHMARKS)}")
    chosen = ""
    if isinstance(exemplars, str | Path):
        exemplars = load_exemplars(
            PUBLISHED + kind if exemplars == PUBLISHED.rstrip(":") else exemplars
        )
    elif exemplars is None and name == PLAIN:
        exemplars = ()
    elif exemplars is None:
        exemplars = (
            load_exemplars(name)
            if name == kind
            else almanac.exemplars(kind)[: almanac.DEFAULT_EXEMPLARS]
        )
        chosen = f"the package's own set for {name}"
    examples = several(
        "exemplars",
        exemplars,
        Exemplar,
        "give Exemplar(question, rationale, answer) objects, or a file of them",
    )
    # which takes the whole text where the phrase is missing
    rule = kind if kind in BENCHMARKS else "2wikimultihopqa"
    return PromptTemplate(
        tuple(examples), INSTRUCTIONS.get(kind, ""), answer_rule=rule, chosen=chosen
    )


def template_of(exemplars: Iterable[Exemplar] | str | Path) -> PromptTemplate:
    """The prompt for exemplars: that of the benchmark a set is named after, otherwise one
    without an instruction.
    """
    kind = str(exemplars).removeprefix(PUBLISHED) if isinstance(exemplars, str | Path) else PLAIN
    return build_template(kind if kind in BENCHMARKS else PLAIN, exemplars)


def data_folder() -> Path:
    """The folder of the benchmarks' folders: ``DRAGIN_LAB_DATA``, by default ``data``."""
    return Path(os.environ.get("DRAGIN_LAB_DATA") or "data").expanduser()


def find_benchmark(source: str | Path, split: str | None = None) -> Path:
    """The file that ``load_questions`` reads; ``DataError`` where there is none. Almanac's
    questions are in none.
    """
    name = str(source)
    if name in BENCHMARKS and not Path(name).exists():
        path = data_folder() / name / FILES[name]
        if not path.is_file():
            raise DataError(
                f"{path}: no such file; get it with 'dragin-lab data fetch {name}', set"
                " DRAGIN_LAB_DATA, or give the file itself"
            )
    else:
        path = as_path(source, DataError)
        if path.is_dir():
            names = sorted({*FILES.values()})
            inside = [file for file in names if (path / file).is_file()]
            if len(inside) != 1:
                raise DataError(f"{path}: holds none of {', '.join(names)}; give the file itself")
            path /= inside[0]
        elif not path.is_file():
            known = [*BENCHMARKS, *(f"almanac/{n}" for n in BENCHMARKS)]
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"the benchmarks are {', '.join(known)}"
            )
            raise DataError(f"{name!r} is neither a file, a folder nor a benchmark; {hint}")
    if split is not None and split not in path.name:
        raise DataError(f"{path}: this file holds one split only; leave split={split!r} out")
    return path


def _almanac_kind(source: str | Path) -> str | None:
    first, _, kind = str(source).partition("/")
    return kind if first == "almanac" and kind in BENCHMARKS else None
