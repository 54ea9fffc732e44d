"""BM25 over many passages: the scores computed once, kept in bm25s's files and read from there as they are needed.

Analysis and formula are those of ``retrieval.bm25``. Scores are float32, so passages whose scores differ by less than
about one part in a million may change places with ``BM25``'s order; equal scores stand in corpus order in both.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab.errors import BrokenOffError, CorpusError, SettingError
from dragin_lab.files import locked, not_saved, write_whole
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.best_fields import BestFields
from dragin_lab.retrieval.bm25s_build import (
    DATA,
    FIELDS,
    INDICES,
    INDPTR,
    PARAMETERS,
    PROGRESS,
    build_fields,
    clear,
)
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.indexes import ABOUT, index_folder, read_about, write_about
from dragin_lab.retrieval.postings import ENDS, TERMS, Terms, save_array, sum_scores

#: Of a folder's layout; another number is refused.
FORMAT = 2
_FILES = (DATA, INDICES, INDPTR, PARAMETERS, TERMS, ENDS)


@dataclass(frozen=True)
class _Field:
    """One field of all passages: its terms, and bm25s's matrix by term (``scores``: data, indices, indptr)."""

    terms: Terms
    scores: dict[str, np.ndarray]

    def postings(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The passages that hold a term and what it adds to their score, (postings,) int32 and float32."""
        start, stop = (int(end) for end in self.scores["indptr"][number : number + 2])
        return np.asarray(self.scores["indices"][start:stop]), np.asarray(self.scores["data"][start:stop])


class BM25S(BestFields):
    """``BestFields`` over bm25s's matrices: made in memory, or in a folder (``build``) and mapped from there.

    Needs ``bm25s`` (the extra ``corpora``); raises ``SettingError`` where it is not installed.
    """

    kind = "bm25s"
    library = "bm25s"

    def __init__(self, corpus: Corpus, *, k1: float = 1.2, b: float = 0.75, tie_breaker: float = 0.5) -> None:
        super().__init__(corpus, k1=k1, b=b, tie_breaker=tie_breaker)
        self._fields = {name: _built((getattr(p, name) for p in corpus), self.k1, self.b) for name in FIELDS}

    def field_scores(self, queries: Sequence[list[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Title's and text's scores of every passage, each (queries, passages) float32."""
        title, text = (self._scores(self._fields[name], queries) for name in FIELDS)
        return title, text

    def _scores(self, field: _Field | None, queries: Sequence[list[str]]) -> np.ndarray:
        if field is None:
            return np.zeros((len(queries), len(self.corpus)), np.float32)
        number = {term: field.terms.find(term) for term in {term for query in queries for term in query}}
        held = [Counter(n for term in query if (n := number[term]) is not None) for query in queries]
        return sum_scores(held, field.postings, len(self.corpus), np.float32)

    # -- on disk ------------------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        corpus: Corpus,
        folder: str | Path | None = None,
        *,
        k1: float = 1.2,
        b: float = 0.75,
        tie_breaker: float = 0.5,
        force: bool = False,
        workers: int | None = None,
        progress: bool | None = None,
    ) -> BM25S:
        """Build the index of a built corpus in a folder, or go on where an earlier call was stopped, and open it.

        Args:
            folder: default one in the corpus's own.
            force: begin anew, whatever the folder holds.
            workers: processes that analyse; by default one a core.
            progress: bars on the error output; by default where that is a terminal.

        An index that is there is opened. Raises ``CorpusError`` for a corpus that was not built, a folder that holds an
        index of something else or that another process writes; ``BrokenOffError`` where it cannot be written to the
        end; what was analysed is kept.
        """
        _library()
        if corpus.folder is None:
            raise CorpusError(
                f"{corpus.source}: is no built corpus; "
                f"dragin-lab corpus build {corpus.source} --out FOLDER --index bm25s"
            )
        index = cls.__new__(cls)
        super(BM25S, index).__init__(corpus, k1=k1, b=b, tie_breaker=tie_breaker)
        target = index_folder(corpus, cls.kind) if folder is None else Path(folder).expanduser()
        facts = index._facts()
        try:
            target.mkdir(parents=True, exist_ok=True)
            with locked(target, "another build is writing here; wait for it, or end it"):
                if force:
                    clear(target)
                elif (target / ABOUT).exists():
                    return cls._opened(target, corpus, facts)
                (target / ABOUT).unlink(missing_ok=True)
                made = build_fields(
                    corpus.folder, len(corpus), target, facts, workers=workers, progress=progress
                )  # fmt: skip
                index._describe(target, made)
                clear(target)
        except OSError as error:
            raise BrokenOffError(
                f"{not_saved(error.filename or target, error)}; then run it again, and it goes on where it stopped"
            ) from error
        return cls._opened(target, corpus, facts)

    def save(self, folder: str | Path) -> Path:
        """Write an index that was made in memory into a folder; what describes it comes last, so that half is none.

        Raises ``CorpusError`` where it cannot be written.
        """
        target = Path(folder).expanduser()
        try:
            target.mkdir(parents=True, exist_ok=True)
            (target / ABOUT).unlink(missing_ok=True)
            for name, field in self._fields.items():
                if field is not None:
                    (target / name).mkdir(exist_ok=True)
                    for file, part in ((DATA, "data"), (INDICES, "indices"), (INDPTR, "indptr")):
                        save_array(target / name / file, field.scores[part])
                    field.terms.save(target / name)
            self._describe(target, {n: None if f is None else len(f.scores["data"]) for n, f in self._fields.items()})
        except OSError as error:
            raise CorpusError(not_saved(target, error)) from None
        return target

    @classmethod
    def load(cls, folder: str | Path, corpus: Corpus) -> BM25S:
        """The index of ``corpus`` from its folder; postings stay on disk and are read as queries need them.

        Raises ``CorpusError`` for a folder that holds none or half of one, one of another corpus, of another analysis
        or format, or files that are cut short or, in an index of at most 64 MiB, damaged (``indexes.check_files``).
        """
        return cls._opened(Path(folder).expanduser(), corpus, _identity(corpus))

    @classmethod
    def open(cls, corpus: Corpus) -> BM25S:
        """The index in a built corpus's folder; of a corpus in memory, one that is made on the spot.

        Raises ``CorpusError`` where a built corpus has none, and as ``load``.
        """
        if corpus.folder is None:
            return cls(corpus)
        folder = index_folder(corpus, cls.kind)
        if not (folder / ABOUT).exists():
            unfinished = (folder / PROGRESS).exists()
            raise CorpusError(
                f"{corpus.folder}: {'its bm25s index was not finished' if unfinished else 'has no bm25s index'}; "
                f"dragin-lab corpus index {corpus.folder}"
            )
        return cls.load(folder, corpus)

    @classmethod
    def _opened(cls, source: Path, corpus: Corpus, wanted: dict[str, Any]) -> BM25S:
        _library()
        about = read_about(source, wanted)
        index = cls.__new__(cls)
        super(BM25S, index).__init__(corpus, **{name: about[name] for name in ("k1", "b", "tie_breaker")})
        index._fields = {name: _mapped(source / name, about["postings"][name]) for name in FIELDS}
        return index

    def _facts(self) -> dict[str, Any]:
        """What the index is of, all of which must be the same when a build goes on."""
        return _identity(self.corpus) | {"k1": self.k1, "b": self.b, "tie_breaker": self.tie_breaker}

    def _describe(self, folder: Path, postings: dict[str, int | None]) -> None:
        fields = [name for name in FIELDS if postings[name] is not None]
        for name in fields:
            write_whole(folder / name / PARAMETERS, _parameters(self.k1, self.b, len(self.corpus)))
        about = self._facts() | {"postings": postings, "library": self.provenance()["library"]}
        write_about(folder, about, [f"{name}/{file}" for name in fields for file in _FILES])


def _identity(corpus: Corpus) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": BM25S.kind,
        "analysis": analysis.NAME,
        "analysis_fingerprint": analysis.fingerprint(),
        "corpus_fingerprint": corpus.fingerprint,
        "passages": len(corpus),
    }


def _library() -> Any:
    try:
        import bm25s
    except ImportError:
        raise SettingError("this index needs bm25s; pip install 'dragin-lab[corpora]', or use BM25") from None
    return bm25s


def _matrix(k1: float, b: float) -> Any:
    return _library().BM25(k1=k1, b=b, method="lucene", dtype="float32")


def _parameters(k1: float, b: float, passages: int) -> bytes:
    """What bm25s keeps beside its matrix."""
    made = _matrix(k1, b)
    names = ("k1", "b", "delta", "method", "idf_method", "dtype", "int_dtype", "backend")
    facts = {name: getattr(made, name) for name in names}
    return json.dumps(facts | {"num_docs": passages, "version": _library().__version__}, indent=1).encode()


def _built(texts: Iterable[str], k1: float, b: float) -> _Field | None:
    """One field of all passages; None where no passage has a term in it.

    As in Lucene, the number of passages and their mean length count those that have the field: only these are given to
    bm25s, and what it numbers is numbered by the corpus afterwards.
    """
    matrix = _matrix(k1, b)
    numbers: dict[str, int] = {}
    documents: list[np.ndarray] = []
    filled = array("i")
    for row, text in enumerate(texts):
        terms = analysis.terms(text)
        if terms:
            filled.append(row)
            documents.append(np.array([numbers.setdefault(term, len(numbers)) for term in terms], np.int32))
    if not documents:
        return None
    order = sorted(numbers, key=str.encode)
    rank = np.empty(len(order), np.int32)  # (terms,)
    rank[[numbers[term] for term in order]] = np.arange(len(order))
    scores = matrix.build_index_from_ids(
        list(range(len(order))), [rank[document] for document in documents], show_progress=False
    )
    scores["indices"] = np.asarray(filled, np.int32)[scores["indices"]]  # (postings,)
    return _Field(Terms.of(order), {part: scores[part] for part in ("data", "indices", "indptr")})


def _mapped(folder: Path, postings: int | None) -> _Field | None:
    if postings is None:
        return None
    try:
        matrix = _library().BM25.load(str(folder), mmap=True, load_vocab=False, show_progress=False)
        terms = Terms.load(folder)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise CorpusError(f"{folder}: cannot be read ({error}); build the index anew") from None
    scores = {part: matrix.scores[part] for part in ("data", "indices", "indptr")}
    sizes = {len(scores["data"]), len(scores["indices"]), int(scores["indptr"][-1])}
    if sizes != {postings} or len(terms) + 1 != len(scores["indptr"]):
        raise CorpusError(f"{folder}: holds {sizes} postings in place of {postings:,}; build the index anew")
    return _Field(terms, scores)
