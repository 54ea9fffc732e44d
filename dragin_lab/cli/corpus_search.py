"""``dragin-lab corpus search``: what a retriever finds for a query."""

from __future__ import annotations

import json
import shutil
import textwrap

import rich_click as click

from dragin_lab.cli.options import (
    check_corpus,
    check_retriever,
    corpus_option,
    debug_option,
    load_retriever,
    retriever_option,
)
from dragin_lab.cli.outputs import echo


@click.command(short_help="Search a corpus, and print what is found.")
@click.argument("query")
@corpus_option
@retriever_option
@click.option(
    "--top-k",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How many passages to print, the best first.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON per passage: rank, id, score, title, text."
)
@debug_option
def search(
    query: str, corpus: str | None, corpus_fields: str | None, retriever: str | None, top_k: int, as_json: bool
) -> None:
    """Search the passages for QUERY, as a method's retrievals do, and print the best with their scores."""
    if not query.strip():
        raise click.UsageError("the query is empty; write one between quotes")
    check_corpus(corpus, corpus_fields)
    check_retriever(retriever)
    opened = load_retriever(corpus, retriever, corpus_fields)
    found = opened.search(query, top_k)
    if not as_json:
        echo(f"{opened!r}", err=True)
    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    for rank, passage in enumerate(found, 1):
        if as_json:
            line = {"rank": rank, "id": passage.id, "score": passage.score}
            echo(json.dumps(line | {"title": passage.title, "text": passage.text}))
            continue
        echo(f"{rank}. {passage.score:.4f}  {passage.id}  {passage.title}".rstrip())
        echo(textwrap.fill(passage.text, width, initial_indent="   ", subsequent_indent="   "))
    if not found:
        echo("nothing was found: no passage holds a term of the query", err=True)
