"""Write Almanac's files from the seed: what the package ships, and the same questions in the originals' formats."""

from __future__ import annotations

import csv
import json
import lzma
import os
import random
import shutil
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from dragin_lab.data import datasets
from dragin_lab.files import write_whole
from tools.almanac import formats, questions
from tools.almanac.benchmarks import BENCHMARKS, Asked, Knowledge, ask_all, label_record
from tools.almanac.encyclopedia import Encyclopedia, Entry
from tools.almanac.formats import Record
from tools.almanac.stream import Stream
from tools.almanac.text import STEPS
from tools.almanac.world import AlmanacError, build_world

EDITION = 2  # of the world
SPLITS = questions.SPLITS
FILES = {  # questions of a benchmark; the names of the originals with the split in them
    "2wikimultihopqa": "2wikimultihopqa/{split}.json",
    "hotpotqa": "hotpotqa/hotpot_{split}_distractor_v1.json",
    "strategyqa": "strategyqa/strategyqa_{split}.json",
    "iirc": "iirc/{split}.json",
}


def question_file(folder: Path, benchmark: str, split: str) -> Path:
    """The file of a benchmark's questions. Raises `AlmanacError` for names that do not exist."""
    if benchmark not in FILES:
        raise AlmanacError(f"Almanac has no benchmark {benchmark!r}; it has {', '.join(BENCHMARKS)}")
    if split not in SPLITS:
        raise AlmanacError(f"Almanac has no split {split!r}; it has {', '.join(SPLITS)}")
    return folder / FILES[benchmark].format(split=split)


def labels_file(folder: Path, benchmark: str, split: str) -> Path:
    """The file that says what each answer needs and who could know it, a JSON object a line."""
    question_file(folder, benchmark, split)
    return folder / "labels" / f"{benchmark}.{split}.jsonl"


_EXEMPLAR_KINDS = {
    "2wikimultihopqa": (
        "director birthplace",
        "first film",
        "paternal grandfather",
        "later director",
        "director mother",
        "same country",
    ),
    "hotpotqa": (
        "birthplace mayor",
        "first born",
        "deathplace country",
        "birthplace founded",
        "older town",
        "director birthplace mayor",
    ),
    "strategyqa": (
        "born before release",
        questions.CROSS,
        "alive at release",
        "film before birth",
        "born before death",
        questions.CROSS,
    ),
    "iirc": (
        "director spouse",
        questions.AGE,
        "born before release",
        "director died",
        questions.AGE,
        "director birthplace country",
    ),
    "self-ask": ("director birthplace", "first born", "birthplace mayor", "director father"),
    "flare-instruct": ("director birthplace", "birthplace mayor", "director father", "first born"),
}


def exemplars(seed: int = 0) -> dict[str, list[dict[str, str]]]:
    """Worked examples for each benchmark and for the layouts of self-ask and FLARE-instruct.

    They ask for known facts in the training split (FLARE-instruct: for facts of nobody's, so that a search is due).
    """
    stream = Stream(build_world(seed), seed)
    made: dict[str, list[dict[str, str]]] = {}
    for name, kinds in _EXEMPLAR_KINDS.items():
        stream.rng = random.Random(f"almanac exemplars {seed} {name}")
        rows: dict[str, dict[str, str]] = {}
        while len(rows) < len(kinds):
            kind, wish = kinds[len(rows)], "yes" if len(rows) % 2 else "no"
            if name == "flare-instruct":
                item = stream.fresh_item_of(kind)
                rationale = stream.instruct_text(item)
            else:
                item = stream.known_item_of(kind, wish, unchanged=True)
                rationale = (
                    stream.self_ask_text(item) if name == "self-ask" else questions.reasoning(stream.rng, item)[0]
                )
            rows.setdefault(item.question, {"question": item.question, "rationale": rationale, "answer": item.answer})
        made[name] = list(rows.values())
    return made


def _write_json(path: Path, value: Any) -> None:
    """A list is written with one record a line, so that differences can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, list):
        text = "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in value) + "\n]\n"
    else:
        text = json.dumps(value, ensure_ascii=False, indent=0) + "\n"
    path.write_text(text, encoding="utf-8")


def _write_lines(path: Path, records: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), encoding="utf-8")


def _write_passages(path: Path, entries: Iterable[Entry]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("id", "text", "title"))
        writer.writerows((one.id, one.text, one.title) for one in entries)


def _write_benchmark(
    folder: Path, benchmark: str, split: str, asked: list[Asked], book: Encyclopedia, seed: int
) -> None:
    rng = random.Random(f"almanac contexts {seed} {benchmark} {split}")
    path = question_file(folder, benchmark, split)
    if benchmark == "2wikimultihopqa":
        _write_json(path, [formats.twowiki(one, book, rng) for one in asked])
    elif benchmark == "hotpotqa":
        _write_json(path, [formats.hotpot(one, book, rng) for one in asked])
    elif benchmark == "strategyqa":
        _write_json(path, [formats.strategy(one, book) for one in asked])
        _write_json(path.with_name(f"strategyqa_{split}_paragraphs.json"), formats.paragraphs(asked, book))
    else:
        nowhere = formats.unanswerable(build_world(seed), split, len(asked) // 4)
        _write_json(path, formats.iirc(asked, nowhere, book))
    _write_lines(labels_file(folder, benchmark, split), (label_record(one, book) for one in asked))


def write_all(folder: Path, seed: int = 0) -> None:
    """Write passages, questions, labels and exemplars of a seed into a folder."""
    almanac = build_world(seed)
    book = Encyclopedia(almanac)
    folder.mkdir(parents=True, exist_ok=True)
    _write_passages(folder / "psgs_w100.tsv", book.entries)
    for (benchmark, split), asked in ask_all(almanac, book, Knowledge(almanac)).items():
        _write_benchmark(folder, benchmark, split, asked, book, seed)
    _write_lines(folder / "2wikimultihopqa" / "id_aliases.json", formats.aliases(almanac))
    for name, rows in exemplars(seed).items():
        _write_json(folder / "exemplars" / f"{name}.json", rows)


def world_lines(seed: int = 0) -> dict[str, list[Record]]:
    """What the package ships of a seed, by the name of the file: what `dragin_lab.almanac` reads."""
    almanac = build_world(seed)
    book = Encyclopedia(almanac)
    labels = [label_record(one, book) for asked in ask_all(almanac, book, Knowledge(almanac)).values() for one in asked]
    with tempfile.TemporaryDirectory() as made:
        write_all(Path(made), seed)
        questions = [
            {"benchmark": name, "split": split, "id": one.id, "question": one.text, "golds": list(one.golds)}
            for name in BENCHMARKS
            for split in SPLITS
            for one in datasets.load(question_file(Path(made), name, split))
        ]
    return {
        "passages": [{"id": one.id, "title": one.title, "text": one.text} for one in book.entries],
        "questions": questions,
        "labels": labels,
        "exemplars": [{"set": name, "exemplars": rows} for name, rows in exemplars(seed).items()],
        "wordings": [{"relation": relation, "sentences": list(ways)} for relation, ways in STEPS.items()],
    }


def ship(out: Path, seed: int = 0) -> Path:
    """Write the package's data of a seed into `out`: compressed JSON lines and their manifest."""
    out.mkdir(parents=True, exist_ok=True)
    manifest: Record = {"edition": EDITION, "seed": seed, "files": {}}
    for name, rows in world_lines(seed).items():
        data = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows).encode()
        path = out / f"{name}.jsonl.xz"
        write_whole(path, lzma.compress(data, preset=9))
        manifest["files"][path.name] = {"lines": len(rows), "sha256": sha256(data).hexdigest()}
    write_whole(out / "manifest.json", (json.dumps(manifest, indent=1) + "\n").encode())
    return out


def build(out: Path, seed: int = 0, force: bool = False) -> Path:
    """Write Almanac into `out`, all or nothing. What is there is replaced only with `force`."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not force:
        raise AlmanacError(f"{out} exists and is not empty; give another folder or --force")
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        write_all(beside, seed)
        beside.chmod(0o755)
        if out.exists():
            shutil.rmtree(out)
        os.replace(beside, out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return out
