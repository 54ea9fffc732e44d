"""A kernel that is interrupted in the middle of a run: it says so in place, and the notebook
goes on.
"""

from __future__ import annotations

from lab import write_notebook

LOAD = '''import time
import dragin_lab as dl

bm25 = dl.BM25(dl.Corpus.load())


class Slow:
    """Searches for a minute."""

    def search(self, query, k):
        print("searching")
        time.sleep(60)
        return bm25.search(query, k)


lab = dl.Lab(retriever=Slow())
'''
QUESTION = '"In which town was the director of The Ashen Rooftop born?"'
ONE = f'lab.ask({QUESTION}, "sr-rag")'
LAST = "import sys\n\nsys.last_value.trace.ended"
MANY = f'list(lab.ask_many([{QUESTION}] * 2, "sr-rag", batch_size=2))'
AFTER = f'lab.replace(retriever=bm25).ask({QUESTION}, "sr-rag").ended'


def test_an_interrupted_run_says_so_and_the_next_cell_runs(lab, open_notebook, picture):
    notebook = open_notebook(
        write_notebook(lab.root, "interrupted.ipynb", [LOAD, ONE, LAST, MANY, AFTER])
    )
    assert notebook.run(0).errors == []
    for place, says, after in (
        (1, "sys.last_value.trace", "cancelled"),
        (3, "2 under way were cancelled", "answered"),
    ):
        notebook.start(place)
        notebook.outputs(place).get_by_text("searching").first.wait_for()
        notebook.page.locator('[data-command="notebook:interrupt-kernel"]').click()
        notebook.wait()
        notebook.page.screenshot(path=picture(f"interrupted-{place}"))
        assert [error.partition(":")[0] for error in notebook.cells()[place].errors] == [
            "KeyboardInterrupt"
        ]
        assert says in notebook.outputs(place).last.inner_text()
        following = notebook.run(place + 1)
        assert following.errors == []
        assert after in following.outputs[-1]["data"]["text/plain"]
