"""``dragin-lab corpus index``: build the index of a corpus that a retriever searches."""

from __future__ import annotations

import rich_click as click

from dragin_lab.cli.options import check_corpus, debug_option
from dragin_lab.cli.outputs import RunFailedError, echo
from dragin_lab.errors import BrokenOffError
from dragin_lab.text import without_secrets


@click.command(short_help="Build the index of a corpus that a retriever searches.")
@click.argument("corpus")
@click.option(
    "--retriever",
    "spec",
    metavar="SPEC",
    required=True,
    help="dense:MODEL, where MODEL is a folder, a Hugging Face id, or almanac; or milvus:URI.",
)
@click.option("--model", help="milvus: fill it with the vectors of this model (as in dense:MODEL), not for BM25.")
@click.option("--device", help="dense: cpu or cuda; default the first GPU, else the CPU.")
@click.option("--force", is_flag=True, help="Build it again, even if there is an index already.")
@debug_option
def index(corpus: str, spec: str, device: str | None, force: bool, model: str | None) -> None:
    """Build the index of CORPUS, a folder of 'dragin-lab corpus build', in that folder; or fill Milvus with it.

    BM25 needs none: a built corpus is its own index.

    An index that was killed, interrupted or ran out of disk continues where it stopped when this is run again.
    """
    check_corpus(corpus)
    build_index(corpus, spec, device=device, force=force, model=model)


def build_index(corpus: str, spec: str, **options: object) -> None:
    """Build an index and say what it is; ``options`` are those of ``choose.build_index``."""
    from dragin_lab.retrieval import choose

    try:
        built = choose.build_index(spec, corpus, **options)  # type: ignore[arg-type]
    except BrokenOffError as error:
        raise RunFailedError(str(error)) from error
    except KeyboardInterrupt:
        echo("\nwhat was done is kept; run it again to continue", err=True)
        raise
    echo(f"{built!r}")
    echo(f"search it with --corpus {corpus} --retriever {without_secrets(spec)}", err=True)
