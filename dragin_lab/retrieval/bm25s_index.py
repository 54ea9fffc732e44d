"""BM25 over many passages: the scores computed once by bm25s, kept in a folder and read from there as they are needed.

Analysis and formula are those of ``retrieval.bm25``. Scores are float32, so passages whose scores differ by less than
about one part in a million may change places with ``BM25``'s order; equal scores stand in corpus order in both.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dragin_lab.corpus import Corpus
from dragin_lab.errors import CorpusError, SettingError
from dragin_lab.files import not_saved, write_whole
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.best_fields import BestFields
from dragin_lab.retrieval.indexes import index_folder

#: Of a folder's layout; another number is refused.
FORMAT = 1
FIELDS = ("title", "text")
_ABOUT = "index.json"


class BM25S(BestFields):
    """``BestFields`` over bm25s's matrices; ``save`` puts them into a folder, ``load`` maps them from there.

    Needs ``bm25s`` (the extra ``corpora``); raises ``SettingError`` where it is not installed.
    """

    kind = "bm25s"
    library = "bm25s"

    def __init__(self, corpus: Corpus, *, k1: float = 1.2, b: float = 0.75, tie_breaker: float = 0.5) -> None:
        super().__init__(corpus, k1=k1, b=b, tie_breaker=tie_breaker)
        self._fields = {name: _built((getattr(p, name) for p in corpus), self.k1, self.b) for name in FIELDS}

    def field_scores(self, query: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Title's and text's scores of every passage, each (passages,) float32; a repeated term counts each time."""
        title, text = (self._scores(self._fields[name], query) for name in FIELDS)
        return title, text

    def _scores(self, field: Any, query: list[str]) -> np.ndarray:
        scores = np.zeros(len(self.corpus), dtype=np.float32)  # (passages,)
        if field is None:
            return scores
        data, holders, start = (field.scores[part] for part in ("data", "indices", "indptr"))
        for row in field.get_tokens_ids(query):
            span = slice(int(start[row]), int(start[row + 1]))
            scores[holders[span]] += data[span]  # a passage stands once in a term's postings
        return scores

    # -- on disk ------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the index into a folder, which is made; what describes it comes last, so that half an index is none.

        Raises ``CorpusError`` where it cannot be written.
        """
        target = Path(folder).expanduser()
        try:
            target.mkdir(parents=True, exist_ok=True)
            (target / _ABOUT).unlink(missing_ok=True)
            for name, field in self._fields.items():
                if field is not None:
                    field.save(str(target / name), show_progress=False)
            write_whole(target / _ABOUT, json.dumps(self._about(), indent=1).encode())
        except OSError as error:
            raise CorpusError(not_saved(target, error)) from None
        return target

    @classmethod
    def load(cls, folder: str | Path, corpus: Corpus) -> BM25S:
        """The index of ``corpus`` from its folder; postings stay on disk and are read as queries need them.

        Raises ``CorpusError`` for a folder that holds none or half of one, one of another corpus, of another analysis
        or format, or files that are cut short.
        """
        source = Path(folder).expanduser()
        about = _read_about(source / _ABOUT)
        wanted = {"format": FORMAT, "analysis": analysis.NAME, "corpus_fingerprint": corpus.fingerprint}
        for name, value in wanted.items():
            if about.get(name) != value:
                raise CorpusError(
                    f"{source}: was built with {name} {about.get(name)!r}, and this is {value!r}; build it anew"
                )
        index = cls.__new__(cls)
        super(BM25S, index).__init__(corpus, **{name: about[name] for name in ("k1", "b", "tie_breaker")})
        index._fields = {name: _mapped(source / name, about["postings"][name]) for name in FIELDS}
        return index

    @classmethod
    def build(
        cls, corpus: Corpus, *, workers: int | None = None, force: bool = False, progress: bool | None = None
    ) -> BM25S:
        """Build the index of a corpus in its folder, and open it."""
        folder = index_folder(corpus, cls.kind)
        return cls.load(cls(corpus).save(folder), corpus)

    @classmethod
    def open(cls, corpus: Corpus) -> BM25S:
        """The index in a built corpus's folder; of a corpus in memory, one that is made on the spot.

        Raises ``CorpusError`` where a built corpus has none, and as ``load``.
        """
        if corpus.folder is None:
            return cls(corpus)
        folder = index_folder(corpus, cls.kind)
        if not (folder / _ABOUT).exists():
            raise CorpusError(f"{corpus.folder}: has no bm25s index; dragin-lab corpus index {corpus.folder}")
        return cls.load(folder, corpus)

    def _about(self) -> dict[str, Any]:
        postings = {n: None if f is None else len(f.scores["data"]) for n, f in self._fields.items()}
        return {"format": FORMAT, "postings": postings} | self.provenance()


def _library() -> Any:
    try:
        import bm25s
    except ImportError:
        raise SettingError("this index needs bm25s; pip install 'dragin-lab[corpora]', or use BM25") from None
    return bm25s


def _built(texts: Iterable[str], k1: float, b: float) -> Any:
    """One field of all passages; None where no passage has a term in it.

    As in Lucene, the number of passages and their mean length count those that have the field: only these are given to
    bm25s, and what it numbers is numbered by the corpus afterwards.
    """
    library = _library()
    vocabulary: dict[str, int] = {}
    documents: list[array[int]] = []
    filled = array("i")
    count = 0
    for count, text in enumerate(texts, 1):
        terms = analysis.terms(text)
        if terms:
            filled.append(count - 1)
            documents.append(array("i", [vocabulary.setdefault(term, len(vocabulary)) for term in terms]))
    if not documents:
        return None
    field = library.BM25(k1=k1, b=b, method="lucene", dtype="float32")
    field.scores = field.build_index_from_ids(list(vocabulary.values()), documents, show_progress=False)
    field.scores["indices"] = np.asarray(filled, np.int32)[field.scores["indices"]]  # (postings,)
    field.scores["num_docs"] = count
    field.vocab_dict = vocabulary
    field.unique_token_ids_set = set(vocabulary.values())
    return field


def _mapped(folder: Path, postings: int | None) -> Any:
    if postings is None:
        return None
    try:
        field = _library().BM25.load(str(folder), mmap=True, show_progress=False)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise CorpusError(f"{folder}: cannot be read ({error}); build the index anew") from None
    sizes = {len(field.scores["data"]), len(field.scores["indices"]), int(field.scores["indptr"][-1])}
    if sizes != {postings}:
        raise CorpusError(f"{folder}: holds {sizes} postings in place of {postings:,}; build the index anew")
    return field


def _read_about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CorpusError(f"{path.parent}: holds no whole index; build one with BM25S(corpus).save(folder)") from None
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: cannot be read ({error}); build the index anew") from None
    if not isinstance(about, dict):
        raise CorpusError(f"{path}: does not describe an index; build it anew")
    return about
