"""What commands share: their options, and the methods and the lab that these describe."""

from __future__ import annotations

import ast
import difflib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import reduce
from itertools import product
from types import ModuleType
from typing import Any

import rich_click as click

import dragin_lab as dl
from dragin_lab.catalog.by_name import merge_settings, tables
from dragin_lab.checks import choice, is_embedded, number
from dragin_lab.core.budget import NEVER
from dragin_lab.core.method import LOOP, METHODS, VARIANTS, Method
from dragin_lab.engines.names import check_name
from dragin_lab.errors import DraginLabError
from dragin_lab.files import as_path
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.retrieval.choose import read_spec
from dragin_lab.retrieval.sources import open_source
from dragin_lab.retrieval.stored import is_stored

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Budget = Callable[[Method, float], float]  # gives θ at which a method retrieves so often a question
Given = Mapping[str, tuple[Any, ...]]  # what ``--set`` says: setting -> its values

#: Settings of ``--set`` that load the model (arguments of ``Lab``), and that say how a cluster is
#: used (``Cluster``).
LOADING = (
    "device",
    "dtype",
    "device_map",
    "quantization",
    "layer",
    "heads",
    "engine",
    "tokenizer",
    "sample",
)
POOL = ("actors", "gpus_per_actor", "cpus_per_actor")
ELSEWHERE = (*LOADING, *POOL)
_PARTS = ("variant", "when", "what")
_BUDGET = "budget:"  # before retrievals a question, in place of θ
_WORDS = {"true": True, "yes": True, "false": False, "no": False, "none": None}
_COMMA = re.compile(r",(?![^(\[]*[)\]])")  # not within parentheses


# -- callbacks of options --------------------------------------------------------------------------


def split_names(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in value.split(",")))


def check_count(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise click.UsageError(
            f"{param.opts[0]} {value}: give 1 or more" + ", or leave it out" * (not param.default)
        )
    return value


def define_parts(ctx: click.Context, param: click.Parameter, files: tuple[str, ...]) -> None:
    """Run Python files for the triggers and query formulators that they define."""
    for place, name in enumerate(files):
        path = as_path(name)
        if not path.is_file():
            raise click.UsageError(
                f"--with {name}: no such file; give a Python file with @dl.when or @dl.what in it"
            )
        private = f"_dragin_lab_with_{place}_{path.stem}"  # no module of that name can be in use
        sys.modules[private] = module = ModuleType(private)
        module.__file__ = str(path)
        try:
            exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
        except DraginLabError as error:
            raise click.UsageError(f"--with {name}: {error}") from error
        except Exception as error:  # whatever a user's own file raises
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise click.UsageError(
                f"--with {name}, line {where.lineno}: {type(error).__name__}: {error}"
            ) from error


def read_settings(
    ctx: click.Context, param: click.Parameter, pairs: Sequence[str]
) -> dict[str, tuple[Any, ...]]:
    """``KEY=VALUE,…`` as setting -> values. What is no number, list, true or false stays a text."""
    given: dict[str, tuple[Any, ...]] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        parts = [part.strip() for part in _COMMA.split(text)]
        if not (equals and key.isidentifier() and all(parts)):
            raise click.UsageError(
                f"--set {pair}: write KEY=VALUE, such as threshold=1.2, or KEY=VALUE,VALUE"
            )
        values = tuple(dict.fromkeys(map(_read_literal, parts)))
        if given.setdefault(key, values) != values:
            raise click.UsageError(
                f"--set {key} is given twice; give all its values at once: {key}=VALUE,VALUE"
            )
    return given


def _read_literal(text: str) -> Any:
    try:
        value = _WORDS[text.lower()] if text.lower() in _WORDS else ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text
    return tuple(value) if isinstance(value, list) else value


def use_one_thread(ctx: Any = None, param: Any = None, model: str | None = None) -> str | None:
    """For the embedded model, whose threads only wait for one another; before torch is loaded,
    by spaCy too.
    """
    if model is None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    return model


def option(panel: str, names: str, help: str, **how: Any) -> Decorator:
    """An option in its part of the help; ``names`` are its own and, where that is another, its
    parameter's.
    """
    return click.option(*names.split(), panel=panel, help=help, **how)


def join_options(*options: Decorator) -> Decorator:
    """Several options as one, in the order of the help."""
    return lambda command: reduce(lambda made, one: one(made), reversed(options), command)


set_option = option(
    "Method",
    "--set given",
    "Any setting; several values stand between commas, and it may be repeated. Of the method:"
    " variant=reference, when=margin@0.6, what=last-n, threshold=1.2, top_n=25, top_k=3,"
    " max_new_tokens=64 (dl.methods() lists more). threshold=budget:1.5 finds θ on the questions,"
    " for 1.5 retrievals each. Of the model: device, dtype, device_map, quantization=4bit, layer,"
    " heads=[0,3], engine, tokenizer, sample=true.",
    multiple=True,
    callback=read_settings,
)
_WITH = "A Python file of your own triggers and query formulators."
method_options = join_options(
    option(
        "Method",
        "--method names",
        f"Of {', '.join(METHODS)}.",
        default="dragin",
        callback=split_names,
    ),
    set_option,
    option(
        "Method",
        "--with",
        _WITH,
        multiple=True,
        is_eager=True,
        expose_value=False,
        callback=define_parts,
    ),
)
lab_options = join_options(
    option(
        "Passages",
        "--corpus",
        "A built corpus, files of passages, hub:NAME; default the embedded ones.",
    ),
    option(
        "Passages",
        "--corpus-fields",
        "Fields of --corpus: id=doc_id,text=contents.",
        metavar="NAMES",
    ),
    option(
        "Passages",
        "--retriever",
        "bm25, tantivy, dense:MODEL. Default tantivy where built, else bm25.",
    ),
    option(
        "Prompt",
        "--exemplars",
        "A YAML file, a benchmark's name, published:NAME, or published for each its own.",
    ),
    option(
        "Prompt",
        "--layout",
        "dragin or flare as in the papers, or the model's own chat.",
        default="dragin",
    ),
    option("Model", "--seed", "Seed of sampled decoding, and of --sample.", default=0),
)
_MODEL = "A folder, GGUF file, Hugging Face id or server's address; default the embedded model."
model_option = option("Model", "--model", _MODEL, is_eager=True, callback=use_one_thread)
benchmark_options = join_options(
    option(
        "Questions",
        "--dataset datasets",
        "A benchmark (2wikimultihopqa, hotpotqa, strategyqa, iirc, almanac/2wikimultihopqa …) or a"
        " file of questions; several between commas, or the option repeated.",
        multiple=True,
        default=("almanac/2wikimultihopqa",),
    ),
    option(
        "Questions",
        "--fields",
        "Fields of a file: question=q,answer=gold,separator=|.",
        metavar="NAMES",
    ),
    option("Questions", "--split", "Almanac's train, dev or test; default test."),
    option(
        "Questions",
        "--limit",
        "Only the first N questions of each data set.",
        type=int,
        callback=check_count,
    ),
    option(
        "Questions",
        "--part",
        "I/N: every Nth question from the Ith on, for one of N processes.",
        metavar="I/N",
    ),
    option(
        "Questions",
        "--sample",
        "N questions of each data set, drawn at random.",
        type=int,
        callback=check_count,
    ),
    lab_options,
    model_option,
    option("Run", "--batch-size", "Questions side by side.", default=1, callback=check_count),
    option(
        "Run",
        "--store",
        "Folder of a cache, for later runs too. Default: in memory, for several runs.",
    ),
    option(
        "Run",
        "--traces/--no-traces",
        "Every trace in full, or none; default: slim, up to 64 MiB.",
        default=None,
    ),
    option(
        "Run",
        "--ray",
        "Answer on a Ray cluster: the head's HOST:PORT, auto for this machine's cluster, or local"
        " to start one here; --set actors=4 says how many workers, gpus_per_actor and"
        " cpus_per_actor what each takes.",
    ),
)


def list_settings(name: str, variant: str | None, when: str | None, what: str | None) -> set[str]:
    """The settings of the method ``name``, where its parts may be others in their written form."""
    known = variant if name in REFERENCE_METHODS and variant in VARIANTS else VARIANTS[0]
    forms = zip(tables(str(known)), (when, what), METHODS[name], strict=True)
    parts = [registry.read(form or own)[0] for (_, registry), form, own in forms]
    return {*LOOP, "nlp"} | {f.name for part in parts for f in fields(part)}


def build_methods(
    names: Iterable[str],
    given: Given,
    published: Callable[[str], dict[str, Any]] = lambda name: {},
    budget: Budget | None = None,
) -> tuple[list[Method], set[str]]:
    """Every method in every combination of the settings that it takes, each once; the settings with
    several values.

    ``published`` gives a method's settings where ``given`` leaves them open; else they are the
    method's own. ``budget`` gives θ where it is written as ``budget:1.5``, by itself or in
    ``rind@budget:1.5``. Raises ``UsageError`` for a setting that no method takes, or that the
    methods do not measure alike, and for a budget where none can be found.
    """
    methods: dict[Method, None] = {}
    known: set[str] = set()
    for name in names:
        own = published(choice("method", name, METHODS))
        for chosen in product(*(given.get(key, (None,)) for key in _PARTS)):
            stated = {
                key: value for key, value in zip(_PARTS, chosen, strict=True) if value is not None
            }
            form, at, retrievals = str(stated.get("when", "")).partition(f"@{_BUDGET}")
            stated |= {"when": form, "threshold": f"{_BUDGET}{retrievals}"} if at else {}
            settings = list_settings(
                name, chosen[0] or own.get("variant"), stated.get("when"), stated.get("what")
            )
            known |= settings
            keys = [key for key in given if key in settings]
            for values in product(*(given[key] for key in keys)):
                merged = merge_settings(own, name, stated | dict(zip(keys, values, strict=True)))
                if _is_budget(asked := merged.get("threshold")):
                    if budget is None:
                        raise click.UsageError(
                            f"threshold={asked}: only 'run' and 'sweep' find it, without --ray"
                        )
                    quiet = dl.method(name, **merged | {"threshold": NEVER})
                    merged["threshold"] = budget(
                        quiet, number("budget", str(asked).removeprefix(_BUDGET))
                    )
                methods[dl.method(name, **merged)] = None
    for key in given.keys() - {*_PARTS, *ELSEWHERE}:
        _check_alike(key, given[key], methods, known)
    return list(methods), {
        key for key, values in given.items() if len(values) > 1 and key not in ELSEWHERE
    }


def _is_budget(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_BUDGET)


def _check_alike(
    key: str, values: tuple[Any, ...], methods: Mapping[Method, None], known: set[str]
) -> None:
    """Refuse a setting that no method takes, and one that would mean different things to the
    methods.
    """
    option = f"--set {key}={','.join(map(str, values))}"
    if key not in known:
        symbols = {"theta": "threshold", "θ": "threshold", "k": "top_k"}
        near = symbols.get(key) or "".join(
            difflib.get_close_matches(key, [*known, *_PARTS, *ELSEWHERE], n=1)
        )
        raise click.UsageError(
            f"{option}: none of the methods takes it" + f"; did you mean {near!r}?" * bool(near)
        )
    parts = {part for method in methods for part in (method.trigger, method.formulator)}
    meanings = {part.name for part in parts if part.settings.get(key) is not None}
    if (
        key in ("threshold", "top_n", "n")
        and len(meanings) > 1
        and not all(map(_is_budget, values))
    ):
        named = " and ".join(sorted(meanings))
        raise click.UsageError(
            f"{option}: {named} do not measure alike; run the methods one by one"
        )


def pick_settings(given: Given, names: Sequence[str]) -> dict[str, Any]:
    """Those of ``names`` that ``--set`` gives, which take one value each."""
    picked: dict[str, Any] = {}
    for name in names:
        if len(values := given.get(name, ())) > 1:
            text = ",".join(map(str, values))
            raise click.UsageError(
                f"--set {name}={text}: takes one value; a list stands in brackets: heads=[0,3]"
            )
        picked |= {name: values[0]} if values else {}
    return picked


def check_parts(options: dict[str, Any]) -> None:
    """Refuse a method, a model, a retriever or passages that cannot be, before torch is imported.

    Of passages that are built anew the first one is read.
    """
    for name in options["names"]:
        choice("method", name, METHODS)
    encoder = None if options["retriever"] is None else read_spec(options["retriever"])[1]
    if options.get("ray") not in (None, "local"):  # the workers' machines have models and passages
        return
    for model in (options["model"], encoder or None, *options["given"].get("tokenizer", ())):
        check_name(model)
    source, columns = options["corpus"], options["corpus_fields"]
    if is_embedded(source) or source.startswith("hub:"):
        return
    if is_stored(as_path(source)):
        dl.Corpus.load(source, fields=columns)
    else:
        next(open_source(source, columns)[1], None)


def read_loading(options: dict[str, Any]) -> dict[str, Any]:
    """What ``--set`` says of loading the model, as arguments of ``Lab``."""
    loading = pick_settings(options["given"], LOADING)
    if (bits := loading.pop("quantization", None)) is not None:
        from dragin_lab.engines.load import read_quantization  # brings torch

        loading["quantization_config"] = read_quantization(bits)
    return loading | ({"heads": [heads]} if isinstance(heads := loading.get("heads"), int) else {})


def open_lab(options: dict[str, Any], **settings: Any) -> dl.Lab:
    own = {key: options[key] for key in ("model", "corpus", "retriever", "seed", "layout")}
    return dl.Lab(**own, fields=options["corpus_fields"], **read_loading(options), **settings)
