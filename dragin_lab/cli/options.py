"""What commands share: options, what is checked before anything is loaded, and how the parts are loaded."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import rich_click as click
from click.types import FloatParamType

from dragin_lab.checks import is_embedded
from dragin_lab.core.method import FORMULATORS, LOOP, METHODS, TRIGGERS, VARIANTS, Method, method
from dragin_lab.core.parts import Registry, read_form
from dragin_lab.core.prompts import LAYOUTS
from dragin_lab.errors import DraginLabError
from dragin_lab.files import as_path

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: What ``--set`` leaves to other options.
_APART = {"name": "--method", "variant": "--variant", "when": "--when", "what": "--what"}
#: What ``--quantization`` takes, as arguments of transformers' ``BitsAndBytesConfig``.
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


class Part(click.ParamType):
    """A trigger or formulator by its name or form, such as ``margin(first=20)@0.6``; ``several`` between commas."""

    name = "name[(setting=value)][@θ]"

    def __init__(self, registry: Registry[Any], *, several: bool = False) -> None:
        self.registry, self.several = registry, several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        texts = re.split(r",(?![^(]*\))", str(value)) if self.several else [str(value)]
        for text in texts:
            self.registry.make(text.strip())
        return tuple(dict.fromkeys(text.strip() for text in texts)) if self.several else texts[0].strip()


class Setting(click.ParamType):
    """``NAME=VALUE``; with ``several`` values between commas. A value that is not a number stays a text."""

    name = "name=value"

    def __init__(self, *, several: bool = False) -> None:
        self.several = several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name.strip().isidentifier() or not text.strip():
            self.fail(f"{value!r}: write NAME=VALUE, such as first=20", param, ctx)
        if name.strip() in _APART:
            self.fail(f"{value!r}: this is no setting of a trigger or a query; give {_APART[name.strip()]}", param, ctx)
        values = [_literal(part.strip()) for part in text.split(",")] if self.several else [_literal(text.strip())]
        return name.strip(), values if len(values) > 1 else values[0]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def define(ctx: click.Context, param: click.Parameter, files: tuple[str, ...]) -> None:
    """Run Python files for the whens and whats that they define."""
    for number, name in enumerate(files):
        path = as_path(name)
        if not path.is_file():
            raise click.UsageError(f"--with {name}: no such file; give a Python file with @dl.when or @dl.what in it")
        if path.suffix == ".json":
            from dragin_lab.study.fitting import trigger

            trigger(path)
            continue
        private = f"_dragin_lab_with_{number}_{path.stem}"  # no module of that name can be in use
        spec = importlib.util.spec_from_file_location(private, path)
        if spec is None or spec.loader is None:
            raise click.UsageError(f"--with {name}: is not a Python file; its name must end in .py, or .json")
        sys.modules[private] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except DraginLabError as error:
            raise click.UsageError(f"--with {name}: {error}") from error
        except Exception as error:  # whatever a user's own file raises
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise click.UsageError(f"--with {name}, line {where.lineno}: {type(error).__name__}: {error}") from error


class _Number(FloatParamType):
    """click's float, by a name that everybody knows."""

    name = "number"


NUMBER = _Number()


class Numbers(click.ParamType):
    """Numbers between commas."""

    name = "value,…"

    def __init__(self, kind: click.ParamType) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self.kind.convert(part.strip(), param, ctx) for part in str(value).split(","))


# -- options ----------------------------------------------------------------------------------------------------------


def together(*options: Decorator) -> Decorator:
    """Several options as one, in the order of the help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error, and libraries' warnings."
)
corpus_option = together(
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
    help="bm25, tantivy, dense:MODEL, milvus:URI, elasticsearch:URL. Default tantivy where built, else bm25.",
)  # fmt: skip
layout_option = click.option(
    "--layout", type=Name(LAYOUTS), default="dragin", show_default=True, panel="Prompt",
    help="The prompt's layout: the paper's, the FLARE paper's, or the model's own chat template.",
)  # fmt: skip
decoding_option = click.option(
    "--decoding", type=Name(("greedy", "sample")), default="greedy", show_default=True, panel="Model",
    help="Take the likeliest token, or sample.",
)  # fmt: skip
model_options = together(
    click.option("--model", panel="Model", help="A folder, GGUF file or Hugging Face id; default the embedded model."),
    click.option("--device", panel="Model", help="cpu or cuda; default the first GPU, else the CPU."),
    click.option(
        "--dtype", panel="Model", help="float32, bfloat16 or float16; default float32 on a CPU, bfloat16 on a GPU."
    ),
    click.option(
        "--device-map", metavar="MAP", panel="Model",
        help="auto: over all GPUs, then the CPU, instead of --device; needs accelerate.",
    ),
    click.option(
        "--quantization", type=Name(tuple(QUANTIZATIONS)), panel="Model",
        help="Weights in 8 or 4 bits, by bitsandbytes.",
    ),
    click.option(
        "--layer", default="last", show_default=True, panel="Model", help="Layer to capture: last, or an index."
    ),
    click.option("--heads", panel="Model", help="Heads to capture, such as 0,3,5; default all."),
)  # fmt: skip
with_option = click.option(
    "--with", multiple=True, metavar="FILE", panel="Method", is_eager=True, expose_value=False, callback=define,
    help="Your own triggers and queries: a Python file that defines them, or the JSON file of a fitted trigger; may be "
    "repeated.",
)  # fmt: skip


def part_options(*, several: bool = False) -> Decorator:
    """The options for a method's when and what; ``several`` takes more than one of each."""
    more = "; or several, between commas." if several else "."
    return together(
        with_option,
        click.option(
            "--when", type=Part(TRIGGERS, several=several), panel="Method",
            help="When to retrieve, instead of its own, such as 'margin(first=20)@0.6'" + more,
        ),
        click.option(
            "--what", type=Part(FORMULATORS, several=several), panel="Method",
            help="What to ask for, instead of its own; 'dragin-lab methods' lists both" + more,
        ),
    )  # fmt: skip


method_options = together(
    click.option(
        "--method", "name", type=Name(tuple(METHODS)), default="dragin", show_default=True, panel="Method",
        help="The method.",
    ),
    part_options(),
)  # fmt: skip


def set_option(*, several: bool = False) -> Decorator:
    """``--set``, as "given"."""
    more = " Give one setting comma-separated values to sweep." if several else ""
    return click.option(
        "--set", "given", type=Setting(several=several), multiple=True, panel="Method",
        help="Any setting of the trigger or the query; may be repeated." + more,
    )  # fmt: skip


def size_options(most: int = 64, *, several: bool = False) -> Decorator:
    """The options that every method has; ``most`` tokens by default, more where the model asks by itself.

    ``several`` takes more than one variant.
    """
    return together(
        click.option(
            "--variant", type=(Names if several else Name)(VARIANTS), default=None if several else "reference",
            show_default=True, panel="Method", help="The authors' released code to the letter, or the paper's equations"
            + ("; or both. Default reference." if several else "."),
        ),
        click.option(
            "--top-k", type=int, panel="Method", help="Passages per retrieval; default 3 (flare, paper variant: 2)."
        ),
        click.option(
            "--max-new-tokens", type=int, panel="Method",
            help=f"Most tokens of a draft and of an answer; default {most} (flare-instruct: 96, self-ask: 192).",
        ),
    )  # fmt: skip


benchmark_options = together(
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
    decoding_option,
    click.option("--batch-size", type=int, default=1, show_default=True, panel="Run", help="Questions side by side."),
    click.option(
        "--store", "store_folder", metavar="DIR", panel="Run",
        help="Cache what is written here, for later runs too. Default: in memory, for several runs.",
    ),
    click.option("--no-store", is_flag=True, panel="Run", help="Share nothing between runs. The answers are the same."),
    click.option(
        "--traces/--no-traces", default=None, panel="Run",
        help="Keep every trace in full, or none. Default: slim ones, up to 64 MiB a run.",
    ),
)  # fmt: skip


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on a terminal; gives the function that is told the bytes that are there, and of how many."""
    from tqdm.auto import tqdm

    with tqdm(desc=name, unit="B", unit_scale=True, disable=None, leave=False) as bar:  # None: only on a terminal

        def advance(have: int, total: int | None) -> None:
            if have < bar.n or not bar.n:  # what an earlier download left says nothing of this one's rate
                bar.reset(total)
                bar.n = bar.initial = bar.last_print_n = have
            bar.update(have - bar.n)

        yield advance


# -- what is checked before anything is loaded ------------------------------------------------------------------------


def build_method(name: str, options: dict[str, Any]) -> Method:
    """The method that the options describe; what an option leaves open is left to the method."""
    return method(name, **stated_settings(name, options))


def stated_settings(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``method`` that the options state, those of ``--set`` too; what none states is missing.

    Raises ``UsageError`` for a setting that is stated twice with different values, and for a word that is no bool.
    """
    keys = ("variant", "when", "what", "threshold", "top_n", "top_k", "max_new_tokens")
    stated = {key: options[key] for key in keys if options.get(key) is not None}
    defaults = default_settings(name, stated.get("when"), stated.get("what"))
    repeated: set[str] = set()
    for key, value in options.get("given", ()):
        if isinstance(defaults.get(key), bool):
            value = [_truth(key, part) for part in value] if isinstance(value, list) else _truth(key, value)
        if key in repeated or stated.get(key, value) != value:
            option = "--set" if key in repeated else f"--{key.replace('_', '-')}"
            raise click.UsageError(f"{option} {key}={stated[key]} and --set {key}={value}: give one of the two")
        repeated.add(key)
        stated[key] = value
    return stated


def default_settings(name: str, when: str | None, what: str | None) -> dict[str, Any]:
    """Setting -> default of the method ``name``, where its parts may be others in their written form."""
    own_when, own_what = METHODS[name]
    parts = ((TRIGGERS, when or own_when), (FORMULATORS, what or own_what))
    found = {f.name: f.default for registry, form in parts for f in fields(registry.named(read_form(form)[0]))}
    return dict.fromkeys(LOOP) | found


def _truth(key: str, value: Any) -> bool:
    try:
        return bool(click.BOOL.convert(str(value), None, None))
    except click.BadParameter:
        raise click.UsageError(f"--set {key}={value}: give true or false") from None


def check_tap(options: dict[str, Any]) -> None:
    """Turn --layer and --heads into what ``LanguageModel.load`` takes."""
    layer, heads = options["layer"], options["heads"]
    if options["device"] is not None and options["device_map"] is not None:
        raise click.UsageError("--device and --device-map: give one of the two")
    try:
        options["layer"] = layer if layer == "last" else int(layer)
    except ValueError:
        raise click.UsageError(f"--layer {layer}: give last, or a whole number such as 0 or -1") from None
    try:
        options["heads"] = None if heads is None else [int(head) for head in heads.split(",")]
    except ValueError:
        raise click.UsageError(f"--heads {heads}: give whole numbers between commas, such as 0,3,5") from None


def check_corpus(corpus: str | None, fields: str | None = None) -> None:
    """Find out by its first passage whether this is a corpus, before a model is loaded."""
    if corpus is None or is_embedded(corpus):
        if fields is not None:
            raise click.UsageError(f"--corpus-fields {fields}: the embedded passages need none; give it with --corpus")
        return
    from dragin_lab.retrieval.sources import find_source
    from dragin_lab.retrieval.stored import Stored, is_stored

    if is_stored(path := as_path(corpus)):
        if fields is not None:
            raise click.UsageError(f"--corpus-fields {fields}: a built corpus has its own; give it to 'corpus build'")
        Stored(path)
    elif not corpus.startswith("hub:"):
        next(find_source(corpus, fields).rows(lambda count: None), None)


def check_retriever(spec: str | None) -> None:
    """Refuse what names no retriever, or one whose package is missing, before a model is loaded."""
    if spec is not None:
        from dragin_lab.retrieval.choose import read_spec

        read_spec(spec)


# -- parts ------------------------------------------------------------------------------------------------------------


def use_one_thread() -> None:
    """For the embedded model, whose threads would only wait for one another.

    To be called before torch is loaded, which spaCy does too where it finds it.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def load_model(options: dict[str, Any], check: bool = True) -> Any:
    from dragin_lab.model.load import LanguageModel

    wanted = {key: options[key] for key in ("device", "dtype", "device_map", "layer", "heads")}
    wanted["quantization"] = QUANTIZATIONS.get(options["quantization"])
    sample = options.get("decoding") == "sample"
    return LanguageModel.load(options["model"], sample=sample, check=check, **wanted)


def load_retriever(corpus: str | None, spec: str | None = None, fields: str | None = None) -> Any:
    from dragin_lab.retrieval.choose import open_retriever

    return open_retriever(spec, corpus, fields)
