"""Passages and questions from a Hugging Face Hub: a server on this machine that answers as the
Hub's interface does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from command import environment
from web import listen

from dragin_lab.data import tabular
from dragin_lab.errors import DraginLabError
from dragin_lab.retrieval.corpus import Corpus

pytest.importorskip("datasets", reason="datasets is not installed (extra: corpora)")

COMMIT = "1" * 40
ROWS = [{"doc_id": 7, "body": "one", "q": "Who?", "gold": ["Ada", "Ada L."]}]
ROWS += [{"doc_id": 8, "body": "two", "q": "When?", "gold": ["1850"]}]
FILES = {
    split: "".join(json.dumps(row) + "\n" for row in rows).encode()
    for split, rows in (("train.jsonl", ROWS), ("test.jsonl", ROWS[:1]))
}


class Hub(BaseHTTPRequestHandler):
    """The data set ``me/mine`` with a file for each split, and nothing else."""

    def log_message(self, *args: object) -> None: ...

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        about = "/api/datasets/me/mine"
        answer: object = None
        if path in (about, f"{about}/revision/{COMMIT}"):
            answer = {
                "id": "me/mine",
                "sha": COMMIT,
                "private": False,
                "siblings": [{"rfilename": n} for n in FILES],
            }
        elif path == f"{about}/tree/{COMMIT}":
            answer = [
                {"type": "file", "path": n, "size": len(d), "oid": "2" * 40}
                for n, d in FILES.items()
            ]
        elif path.startswith("/datasets/me/mine/resolve/"):
            answer = FILES.get(path.rpartition("/")[2])
        data = (
            answer
            if isinstance(answer, bytes)
            else b""
            if answer is None
            else json.dumps(answer).encode()
        )
        self.send_response(404 if answer is None else 200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{len(data):040}"')
        self.send_header("Content-Length", str(len(data)))
        if answer is None:
            self.send_header(
                "X-Error-Code", "EntryNotFound" if "me/mine" in path else "RepoNotFound"
            )
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def hub() -> Iterator[str]:
    with listen(Hub) as address:
        yield address


READ = """
import json, sys
from pathlib import Path
from dragin_lab.data.datasets import load_questions
from dragin_lab.errors import DraginLabError
from dragin_lab.retrieval.corpus import Corpus

out = Path(sys.argv[1])
built = Corpus.build("hub:me/mine#train", out / "built", fields="id=doc_id,text=body")
lines = {"passages": [(p.id, p.text) for p in built], "source": built.passages.about["source"]}
questions = load_questions("hub:me/mine#test", fields="id=doc_id,question=q,answer=gold")
lines["questions"] = [q.golds for q in questions]
first = load_questions("hub:me/mine#train", 1, fields="id=doc_id,question=q,answer=gold")
lines["first"] = [q.text for q in first]
for source in ("hub:me/mine", "hub:me/mine#dev", "hub:me/other"):
    try:
        Corpus.build(source, out / "wrong")
    except DraginLabError as error:
        lines[source] = str(error)
lines["left"] = sorted(path.name for path in out.iterdir())
print(json.dumps(lines))
"""


def test_a_data_set_of_the_hub_is_fetched_read_and_refused_by_name(
    hub: str, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    own = environment(
        HF_ENDPOINT=hub, HF_HOME=str(tmp_path / "cache"), HF_HUB_OFFLINE="0", NO_PROXY="127.0.0.1"
    )
    ran = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "out")],
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = json.loads(ran.stdout)
    assert lines["passages"] == [["7", "one"], ["8", "two"]]
    assert lines["questions"] == [["Ada", "Ada L."]]
    assert lines["first"] == ["Who?"]
    assert lines["source"] == "hub:me/mine#train"
    assert "holds the splits" in lines["hub:me/mine"]
    assert "hub:NAME#SPLIT" in lines["hub:me/mine"]
    assert 'Unknown split "dev"' in lines["hub:me/mine#dev"]
    assert lines["hub:me/other"].startswith("hub:me/other: cannot be loaded by datasets")
    assert "me/other" in lines["hub:me/other"].removeprefix("hub:me/other")
    assert lines["left"] == ["built"]


@pytest.mark.parametrize("name", ["hub:", "hub: ", "hub:#train"])
def test_no_name_of_a_data_set_is_refused(name: str) -> None:
    for read in (Corpus.load, lambda source: list(tabular.read_rows(source))):
        with pytest.raises(
            DraginLabError, match="names no data set; write hub:NAME or hub:NAME#SPLIT"
        ):
            read(name)
