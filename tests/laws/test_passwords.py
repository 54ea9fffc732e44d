"""No output, name, message or record holds a password that stands in an address, whatever
characters it has.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from answering import AnsweringModel
from command import Command
from given import some
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragin_lab.data.fetch import fetch
from dragin_lab.engines.load import open_model
from dragin_lab.errors import DraginLabError
from dragin_lab.lab import Lab
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.run.benchmark import benchmark
from dragin_lab.run.cluster import Cluster, Recipe
from dragin_lab.text import split_credentials

passwords = st.builds(
    "{}s3cret{}more".format, st.sampled_from(["", "12/"]), st.text("/@#?:", max_size=2)
)
addresses = st.builds("{}ann:{}@host:9200/wiki".format, st.sampled_from(["http://", ""]), passwords)
SHOWN = ("ann:", "s3c", "ret@", "'ret")

#: Commands that an address or a typing error ends with.
COMMANDS = [
    (),
    ("table", "a", "b"),
    ("ask", "Who?", "--nothing"),
    ("ask", "Who?", "--layout"),
    ("run", "--limit"),
    ("run", "--method"),
    ("run", "--preset"),
    ("run", "--set", "threshold="),
    ("--debug", "run", "--layer"),
    ("data", "fetch", "hotpotqa", "--url"),
    ("ask", "Who?", "--model"),
    ("ask", "Who?", "--corpus"),
    ("ask", "Who?", "--exemplars"),
    ("ask", "Who?", "--retriever"),
    ("ask", "Who?", "--retriever", "dense:"),
    ("run", "--dataset"),
    ("corpus", "build", "--output"),
    ("table",),
]


@given(kind=st.sampled_from(["", "dense:", "hub:"]), address=addresses)
def test_credentials_end_at_the_last_at_sign(kind: str, address: str) -> None:
    scheme, _, rest = address.rpartition("ann:")
    assert split_credentials(kind + address) == (
        f"ann:{rest.rpartition('@')[0]}",
        f"{kind}{scheme}host:9200/wiki",
    )


@pytest.mark.parametrize(
    "name",
    ["/data/me@home/p.jsonl", "org/model@v2", "dense:org/model@v2", "bm25", "", "smollm:rind@0.5"],
)
def test_a_name_with_an_at_sign_is_no_address(name: str) -> None:
    assert split_credentials(name) == ("", name)


#: What an address is given to.
DOORS: list[Callable[[str], object]] = [
    lambda address: Lab(address),
    lambda address: Lab(corpus=address),
    lambda address: Lab(retriever=address),
    lambda address: Lab(retriever=f"dense:{address}"),
    lambda address: Lab(tokenizer=address),
    lambda address: Lab().replace(model=address),
    lambda address: Recipe(model=address),
    lambda address: Recipe(retriever=f"dense:{address}"),
    lambda address: Recipe(corpus=address),
    lambda address: Cluster(address),
    lambda address: open_model(address, tokenizer="almanac"),
    lambda address: open_model(address, engine="llama.cpp"),
    lambda address: open_retriever(address),
    lambda address: open_retriever(f"bm25:{address}"),
    lambda address: open_retriever("bm25", address),
    lambda address: benchmark(address),
    lambda address: fetch("iirc", url=address, again=True),
]


@given(address=addresses, door=st.sampled_from(DOORS))
def test_no_door_takes_an_address_with_a_password_or_repeats_it(
    address: str, door: Callable[[str], object]
) -> None:
    with pytest.raises(DraginLabError, match="host:9200") as caught:
        door(address)
    said = f"{caught.value} {caught.value.__cause__}"
    assert [part for part in ("s3cret", "more", "ann:") if part in said] == []


@given(door=st.sampled_from(DOORS))
def test_no_door_takes_an_address_with_a_key(door: Callable[[str], object]) -> None:
    with pytest.raises(DraginLabError) as caught:
        door("https://s.example/q?k=3&api_key=pass-w0rd")
    assert "pass-w0rd" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize(
    "address",
    ["http://me:pass-w0rd@search.example/wiki", "https://s.example/q?k=3&api_key=pass-w0rd"],
)
def test_the_password_of_a_retriever_stays_with_it(address: str, tmp_path: Path) -> None:
    class Store:
        facts: ClassVar = {"kind": "mine"}
        broken = False

        def search(self, query: str, k: int) -> list[str]:
            if self.broken:
                raise ConnectionError(f"cannot reach {address}")
            return ["Ida Velmoor directed it."]

        def provenance(self) -> dict[str, object]:
            return self.facts

    store = Store()
    lab = Lab(AnsweringModel(), retriever=store)
    store.broken = True
    with pytest.raises(DraginLabError, match=r"cannot reach https?://s") as raised:
        lab.ask("Who made thing 1?", "sr-rag")
    assert "pass-w0rd" not in str(raised.value) + raised.value.trace.error  # type: ignore[attr-defined]
    raised.value.trace.save(tmp_path / "a.trace")  # type: ignore[attr-defined]
    lab.run(["Who made thing 1?"], "sr-rag", output=tmp_path / "run", progress=False)
    store.broken, store.facts = False, {"kind": "mine", "urls": [address]}
    lab = Lab(AnsweringModel(), retriever=store)
    with pytest.raises(DraginLabError, match="names an address with a password") as said:
        lab.run(["Who made thing 1?"], "sr-rag", output=tmp_path / "more", progress=False)
    assert "pass-w0rd" not in str(said.value)
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() and b"pass-w0rd" in path.read_bytes()
    ] == []


@settings(some(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.sampled_from(COMMANDS),
    mark=st.text("/@,:='\\", max_size=1),
    scheme=st.sampled_from(["http://", ""]),
)
def test_no_command_shows_a_password(
    command: Command, tmp_path: Path, words: tuple[str, ...], mark: str, scheme: str
) -> None:
    address = f"{scheme}ann:s3c{mark}ret@127.0.0.1:9/wiki"
    glued = words[-1:] and words[-1].endswith(("=", ":"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for name in ("DRAGIN_LAB_DATA", "XDG_CACHE_HOME"):
            patch.setenv(name, str(tmp_path))
        ran = command(*words[:-1], words[-1] + address) if glued else command(*words, address)
    assert ran.code
    assert "takes no password" in ran.err
    assert [part for part in SHOWN if part in ran.err + ran.out] == []
