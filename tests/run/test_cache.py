"""The cache: bounded, on disk for later processes, and clear about what is wrong with a folder."""

from __future__ import annotations

import random
import sqlite3
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from answering import embedded

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.run.cache import Cache, CacheError, as_cache


def block(value: int, count: int = 250) -> dict[str, np.ndarray]:
    return {"a": np.full(count, value, np.float32)}


def key(number: int) -> str:
    return f"{number:032d}"


def there(cache: Cache, numbers: range) -> list[int]:
    return [n for n in numbers if cache.get(key(n)) is not None]


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_is_kept_comes_back_and_is_replaced(tmp_path: Path, on_disk: bool) -> None:
    cache = Cache(tmp_path) if on_disk else Cache()
    assert cache.get(key(1)) is None
    cache.put(key(1), block(1))
    cache.put(key(1), {"a": np.arange(5, dtype=np.int32), "none": np.zeros((0, 2), np.float16)})
    with Cache(tmp_path) if on_disk else cache as later:
        found = later.get(key(1))
        assert (found["a"].tolist(), found["none"].shape, found["none"].dtype) == (
            [0, 1, 2, 3, 4],
            (0, 2),
            np.float16,
        )
        assert len(later) == 1


def test_it_is_bounded_and_the_least_recently_used_goes() -> None:
    with Cache(limit=12_000) as cache:
        for n in range(10):
            cache.put(key(n), block(n))
        assert there(cache, range(10)) == list(range(10))
        cache.get(key(0))
        for n in range(10, 13):
            cache.put(key(n), block(n))
        left = there(cache, range(13))
        assert {0, 10, 11, 12} <= set(left)
        assert 1 not in left
        cache.put(key(99), block(1, 10_000))  # larger than the limit
        assert cache.get(key(99)) is None
        assert cache.nbytes <= cache.limit


def test_what_store_may_stand_for(tmp_path: Path) -> None:
    assert as_cache(None) is as_cache(False) is None
    mine = Cache()
    assert as_cache(mine) is mine
    assert isinstance(as_cache(True), Cache)
    opened = as_cache(tmp_path / "new" / "cache")
    assert opened.folder == tmp_path / "new" / "cache"
    opened.close()
    with pytest.raises(SettingError, match="cache=3: give a Cache, a folder, True"):
        as_cache(3)
    with pytest.raises(SettingError, match="limit=-1 is out of range; it must be at least 0"):
        Cache(limit=-1)


# -- on disk ---------------------------------------------------------------------------------------


def test_a_damaged_entry_is_a_miss_whatever_was_changed(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        for n in range(3):
            cache.put(key(n), block(n))
    rows = "SELECT rowid, value FROM Cache"
    with sqlite3.connect(tmp_path / "cache.db") as file:
        (first, whole), (second, _), _ = file.execute(rows).fetchall()
        draw = random.Random(0)
        for _ in range(100):
            damaged = bytearray(whole)
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
            changed = bytes(damaged[: draw.randrange(1, 2000)])
            file.execute("UPDATE Cache SET value = ? WHERE rowid = ?", (changed, first))
            # which diskcache would unpickle
            file.execute("UPDATE Cache SET mode = 4 WHERE rowid = ?", (second,))
            file.commit()
            with (
                Cache(tmp_path) as cache,
                pytest.warns(UserWarning, match="an entry is damaged .*; it is generated"),
            ):
                assert there(cache, range(3)) == [2]
    file.close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        CacheError, match=r"no cache can be written there \(File exists\); try another path"
    ):
        Cache(tmp_path / "file")
    (tmp_path / "cache.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 3000)
    with pytest.raises(CacheError, match=r"cannot be used \(.*\); delete .*cache\.db"):
        Cache(tmp_path)


def test_a_full_disk_ends_the_writing_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cache(tmp_path) as cache:
        cache.put(key(1), block(1))

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(cache._store, "set", fail)
            with pytest.warns(
                UserWarning, match="No space left on device; nothing more is cached there"
            ):
                cache.put(key(2), block(2))
            cache.put(key(3), block(3))  # without another warning
        assert there(cache, range(60)) == [1]


def test_two_share_a_folder(tmp_path: Path) -> None:
    def use(mine: int) -> None:
        with Cache(tmp_path, limit=300_000) as cache:
            for n in range(150):
                cache.put(key(n % 40), block(n % 40))
                other = (n * 7 + mine) % 40
                found = cache.get(key(other))
                assert found is None or set(found["a"].tolist()) == {other}

    with warnings.catch_warnings(), ThreadPoolExecutor(2) as pool:
        warnings.simplefilter("error")
        list(pool.map(use, range(2)))
    with Cache(tmp_path) as cache:
        assert cache.get(key(39)) is not None


def test_an_entry_that_names_a_file_outside_the_folder_touches_it_neither_way(
    tmp_path: Path,
) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "cache"
    victim.write_text("precious")
    for name in ("../victim", str(victim)):
        with Cache(folder) as cache:
            cache.put("a", {"x": np.zeros(9000)})
        database = sqlite3.connect(folder / "cache.db")
        database.execute("update Cache set filename=?, size=99999999999, mode=2", [name])
        database.execute("update Settings set value=99999999999 where key='size'")
        database.commit()
        database.close()
        with Cache(folder) as cache:
            with pytest.warns(match="names a file outside the folder"):
                assert cache.get("a") is None
            cache.put("b", {"x": np.zeros(9000)})  # which makes room
    assert victim.read_text() == "precious"


def test_a_prompt_is_known_by_its_ids() -> None:
    """A passage's "</s>" is text where the passage has a name, and an end mark where a layout of
    one's own hides it.
    """
    question = "Who directed The Ashen Rooftop?"

    def search(query: str, k: int) -> list[dict[str, str]]:
        return [
            {
                "id": "1",
                "title": "t",
                "text": "Ida Velmoor made it.</s></s> She was born in Eastmere.",
            }
        ]

    def layout(asked: str, passages: list[dl.Passage], answer: str) -> str:
        shown = (
            f"Context:\n[1] {passages[0].text}\nAnswer in the same format as before.\n"
            if passages
            else ""
        )
        return f"{shown}Question: {asked}\nAnswer:{answer}"

    def read(template: dl.PromptTemplate, cache: Cache | None) -> list[int]:
        lab = embedded().replace(retriever=search, exemplars=template, cache=cache)
        written = lab.ask(question, "sr-rag", top_k=1, max_new_tokens=4).steps[0].continuation
        assert written is not None
        return written.prompt_ids.tolist()

    cache = Cache()
    own, named = dl.PromptTemplate(layout=layout), dl.PromptTemplate()
    alone = [read(template, None) for template in (named, own)]
    assert [read(template, cache) for template in (named, own)] == alone
    assert alone[0] != alone[1]
