"""What commands share: options, what is checked before anything is loaded, and how the parts are loaded."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rich_click as click

from dragin_lab.checks import choice, is_embedded
from dragin_lab.core.prompts import LAYOUTS
from dragin_lab.files import as_path

if TYPE_CHECKING:
    from dragin_lab.run.lab import Lab

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Settings of ``--set`` that load the model (arguments of ``Lab``), and that say how a cluster is used (``Cluster``).
LOADING = ("device", "dtype", "device_map", "quantization", "layer", "heads", "engine", "tokenizer", "sample")
POOL = ("actors", "gpus_per_actor", "cpus_per_actor")
ELSEWHERE = (*LOADING, *POOL)
#: Values of ``quantization``, as arguments of transformers' ``BitsAndBytesConfig``.
QUANTIZATIONS = {"8bit": {"load_in_8bit": True}, "4bit": {"load_in_4bit": True}}


class Name(click.Choice):
    """A choice of names that also says which one was probably meant, and lists them on one line."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return ", ".join(map(str, self.choices))  # may be folded, as the usual bars may not

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"Choose one of {', '.join(str(choice) for choice in self.choices)}."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            near = difflib.get_close_matches(str(value), [str(choice) for choice in self.choices], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.BadParameter(error.message + hint, ctx=ctx, param=param) from None


class Names(Name):
    """Such names between commas."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        return tuple(dict.fromkeys(Name.convert(self, part, param, ctx) for part in parts))


# -- options ----------------------------------------------------------------------------------------------------------


def join_options(*options: Decorator) -> Decorator:
    """Several options as one, in the order of the help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error, and libraries' warnings."
)
corpus_option = join_options(
    click.option(
        "--corpus", panel="Passages",
        help="A built corpus; or .jsonl, .csv, .tsv (or .gz of them), .parquet, a folder of .txt and .md, a BEIR "
        "folder, or hub:NAME. Default the embedded passages.",
    ),
    click.option(
        "--corpus-fields", metavar="NAMES", panel="Passages",
        help="Fields of --corpus: id=doc_id,text=contents.",
    ),
)  # fmt: skip
retriever_option = click.option(
    "--retriever", metavar="SPEC", panel="Passages",
    help="bm25, tantivy, dense:MODEL. Default tantivy where built, else bm25.",
)  # fmt: skip
layout_option = click.option(
    "--layout", type=Name(LAYOUTS), default="dragin", show_default=True, panel="Prompt",
    help="The prompt's layout: the paper's, the FLARE paper's, or the model's own chat template.",
)  # fmt: skip


def use_one_thread(ctx: Any = None, param: Any = None, model: str | None = None) -> str | None:
    """For the embedded model, whose threads would only wait for one another.

    To be called before torch is loaded, which spaCy does too where it finds it: when options are read.
    """
    if model is None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    return model


model_option = click.option(
    "--model", panel="Model", is_eager=True, callback=use_one_thread,
    help="A folder, GGUF file, Hugging Face id or server's address; default the embedded model.",
)  # fmt: skip
benchmark_options = join_options(
    click.option(
        "--dataset", "datasets", multiple=True, default=("almanac/2wikimultihopqa",), show_default=True,
        panel="Questions", help="A benchmark (2wikimultihopqa, hotpotqa, strategyqa, iirc, almanac/2wikimultihopqa …) "
        "or a file of questions; several between commas, or the option repeated.",
    ),
    click.option(
        "--fields", metavar="NAMES", panel="Questions",
        help="Fields of a file, and the text between several answers: "
        "question=q,answer=gold,separator=|.",
    ),
    click.option("--split", panel="Questions", help="Almanac's train, dev or test; default test."),
    click.option("--limit", type=int, panel="Questions", help="Only the first N questions of each data set."),
    click.option(
        "--sample", "sampled", type=int, panel="Questions", help="N questions of each data set, drawn at random."
    ),
    click.option(
        "--seed", type=int, default=0, show_default=True, panel="Questions",
        help="Seed of --sample and of sampled decoding.",
    ),
    corpus_option,
    retriever_option,
    click.option(
        "--exemplars", panel="Prompt",
        help="Worked examples: a YAML file, a benchmark's name for this package's own set, published for the sets "
        "published with the paper. Default: the data set's own.",
    ),
    layout_option,
    click.option("--batch-size", type=int, default=1, show_default=True, panel="Run", help="Questions side by side."),
    click.option(
        "--store", "store_folder", metavar="DIR", panel="Run",
        help="Cache what is written here, for later runs too. Default: in memory, for several runs.",
    ),
    click.option(
        "--traces/--no-traces", default=None, panel="Run",
        help="Keep every trace in full, or none. Default: slim ones, up to 64 MiB a run.",
    ),
)  # fmt: skip


# -- what is checked before anything is loaded ------------------------------------------------------------------------


def pick_settings(given: Mapping[str, tuple[Any, ...]], names: Sequence[str]) -> dict[str, Any]:
    """Those of ``names`` that ``--set`` gives, which take one value each."""
    picked: dict[str, Any] = {}
    for name in names:
        if len(values := given.get(name, ())) > 1:
            text = ",".join(map(str, values))
            raise click.UsageError(f"--set {name}={text}: takes one value; a list stands in brackets: heads=[0,3]")
        picked |= {name: values[0]} if values else {}
    return picked


def check_corpus(corpus: str | None, fields: str | None = None) -> None:
    """Find out by its first passage whether this is a corpus, before a model is loaded."""
    if corpus is None or is_embedded(corpus):
        if fields is not None:
            raise click.UsageError(f"--corpus-fields {fields}: the embedded passages need none; give it with --corpus")
        return
    from dragin_lab.retrieval.sources import open_source
    from dragin_lab.retrieval.stored import Stored, is_stored

    if is_stored(path := as_path(corpus)):
        if fields is not None:
            raise click.UsageError(f"--corpus-fields {fields}: a built corpus has its own; give it to 'corpus build'")
        Stored(path)
    elif not corpus.startswith("hub:"):
        next(open_source(corpus, fields)[1], None)


def check_parts(options: dict[str, Any]) -> None:
    """Refuse a model, passages or a retriever that cannot be, before any of them is loaded."""
    if {"device", "device_map"} <= pick_settings(options["given"], ELSEWHERE).keys():
        raise click.UsageError("--set device and device_map: give one of the two")
    if options.get("ray") in (None, "local"):  # elsewhere the workers' machines have the passages
        check_corpus(options["corpus"], options["corpus_fields"])
    check_retriever(options["retriever"])


def check_retriever(spec: str | None) -> None:
    """Refuse what names no retriever, or one whose package is missing, before a model is loaded."""
    if spec is not None:
        from dragin_lab.retrieval.choose import read_spec

        read_spec(spec)


# -- parts ------------------------------------------------------------------------------------------------------------


def load_model(options: dict[str, Any], check: bool = True) -> Any:
    from dragin_lab.engines.load import open_model

    loading = pick_settings(options["given"], LOADING)
    if (named := loading.get("quantization")) is not None:
        loading["quantization"] = QUANTIZATIONS[choice("quantization", named, QUANTIZATIONS)]
    if isinstance(loading.get("heads"), int):
        loading["heads"] = [loading["heads"]]
    return open_model(options["model"], check=check, **loading)


def open_lab(options: dict[str, Any], **settings: Any) -> Lab:
    """The lab that the options describe; what is wrong with ``settings`` is said before a model is loaded."""
    from dragin_lab.run.lab import Lab

    passages = {key: options[key] for key in ("corpus", "retriever")} | {"fields": options["corpus_fields"]}
    lab = Lab(seed=options["seed"], layout=options["layout"], **passages, **settings)
    return lab.replace(model=load_model(options))
