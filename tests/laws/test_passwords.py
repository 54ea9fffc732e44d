"""No output, name, message or record holds a password that stands in an address, whatever
characters it has.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from answering import AnsweringModel
from command import Command
from given import some
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragin_lab.catalog.by_name import method
from dragin_lab.core.method import run_label
from dragin_lab.errors import DraginLabError
from dragin_lab.lab import Lab
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.run.cluster import Recipe
from dragin_lab.text import hide_typed_secrets, split_credentials, without_secrets

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
    "name", ["/data/me@home/p.jsonl", "org/model@v2", "dense:org/model@v2", "bm25", ""]
)
def test_a_name_with_an_at_sign_is_no_address(name: str) -> None:
    assert split_credentials(name) == ("", name)


@given(address=addresses)
def test_neither_a_lab_nor_a_recipe_nor_a_refusal_shows_a_password(address: str) -> None:
    shown = [without_secrets(address), run_label(method("dragin"), f"dense:{address}")]
    for kind in ("dense:", ""):
        lab, recipe = (
            Lab(retriever=kind + address),
            Recipe(retriever=kind + address, corpus=address),
        )
        shown += [repr(lab), repr(lab.replace(seed=1)), repr(Lab(corpus=address)), repr(recipe)]
    for refused in ((address,), (f"bm25:{address}",), ("bm25", address)):
        with pytest.raises(DraginLabError) as caught:
            open_retriever(*refused)
        shown.append(f"{caught.value} {caught.value.__cause__}")
    assert [line for line in shown if "s3cret" in line or "more" in line or "ann:" in line] == []


@given(address=addresses)
def test_a_message_repeats_no_part_of_a_typed_address_that_holds_a_password(address: str) -> None:
    for word in (address, f"--limit={address}"):
        message = (
            f"'{address}' is none of 'a', \"{address[:-12]}\", and {address} is 'host:9200/wiki'"
        )
        hidden = hide_typed_secrets(message, ["run", word])
        assert hidden.endswith(
            f"and {address.partition('ann')[0]}host:9200/wiki is 'host:9200/wiki'"
        )
        assert [part for part in ("ann", "s3cret", "more") if part in hidden] == []
    assert hide_typed_secrets("no 'me@home'", ["/data/me@home"]) == "no 'me@home'"


@pytest.mark.parametrize(
    "address",
    ["http://me:pass-w0rd@search.example/wiki", "https://s.example/q?k=3&api_key=pass-w0rd"],
)
def test_the_password_of_a_retriever_stays_with_it(address: str, tmp_path: Path) -> None:
    class Store:
        broken = False

        def search(self, query: str, k: int) -> list[str]:
            if self.broken:
                raise ConnectionError(f"cannot reach {address}")
            return ["Ida Velmoor directed it."]

        def provenance(self) -> dict[str, object]:
            return {"kind": "mine", "urls": [address]}

    store = Store()
    lab = Lab(AnsweringModel(), retriever=store)
    trace = lab.ask("Who made thing 1?", "sr-rag")
    trace.save(tmp_path / "a.trace")
    lab.run(["Who made thing 1?"], "sr-rag", output=tmp_path / "run", progress=False)
    assert "pass-w0rd" not in trace._repr_html_()
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() and b"pass-w0rd" in path.read_bytes()
    ] == []
    store.broken = True
    with pytest.raises(DraginLabError, match=r"cannot reach https?://s") as raised:
        lab.ask("Who made thing 1?", "sr-rag")
    said = "".join(traceback.format_exception_only(raised.value)) + repr(raised.value.__cause__)
    assert "pass-w0rd" not in said + raised.value.trace.error  # type: ignore[attr-defined]


@settings(some(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.sampled_from(COMMANDS),
    mark=st.text("/@,:='\\ ", max_size=1),
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
    assert [part for part in SHOWN if part in ran.err + ran.out] == []
