"""What commands share: their options, and the methods and the lab that these describe."""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, reduce
from inspect import signature
from itertools import product
from typing import Any

import rich_click as click

import dragin_lab as dl
from dragin_lab.catalog.by_name import TABLES, setting_names
from dragin_lab.catalog.exchanged import merge_settings
from dragin_lab.checks import choice, is_embedded
from dragin_lab.core.method import LOOP, METHODS, VARIANTS, Method
from dragin_lab.engines.names import check_name
from dragin_lab.files import as_path
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS
from dragin_lab.retrieval.choose import read_spec
from dragin_lab.retrieval.sources import open_source
from dragin_lab.retrieval.stored import is_stored

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Given = Mapping[str, tuple[Any, ...]]  # what ``--set`` says: setting -> its values

#: Settings of ``--set`` that say how questions and passages are read and sampled.
READING = ("seed", "fields", "corpus_fields")
#: What a setting of a method may be called instead; no argument of loading is.
_SYMBOLS = {"theta": "threshold", "θ": "threshold", "k": "top_k"}
_PARTS = ("variant", "when", "what")
_WORDS = {"true": True, "yes": True, "false": False, "no": False, "none": None}
_COMMA = re.compile(r",(?![^(\[{]*[)\]}])")  # not within parentheses


# -- callbacks of options --------------------------------------------------------------------------


def split_names(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in value.split(",")))


def check_count(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise click.UsageError(
            f"{param.opts[0]} {value}: give 1 or more" + ", or leave it out" * (not param.default)
        )
    return value


def read_settings(ctx: click.Context, param: click.Parameter, pairs: Sequence[str]) -> Given:
    """``KEY=VALUE,…`` as setting -> values. What is no number, list, true or false stays a text."""
    given: dict[str, tuple[Any, ...]] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        values = _read_values(text)
        if not (equals and key.isidentifier() and values):
            raise click.UsageError(
                f"--set {pair}: write KEY=VALUE, such as top_k=5, or KEY=VALUE,VALUE"
            )
        if given.setdefault(key, values) != values:
            raise click.UsageError(
                f"--set {key} is given twice; give all its values at once: {key}=VALUE,VALUE"
            )
    return given


def read_thresholds(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[Any, ...] | None:
    """θ, or several between commas."""
    if text is None:
        return None
    if not (values := _read_values(text)):
        raise click.UsageError(f"--threshold {text}: give a number, or several between commas")
    return values


def _read_values(text: str) -> tuple[Any, ...]:
    """Values between commas, each once; none where one is empty."""
    parts = [part.strip() for part in _COMMA.split(text)]
    return tuple(map(_read_literal, dict.fromkeys(parts))) if all(parts) else ()


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
    " variant=reference, when=margin@0.6, what=last-n, top_n=25, top_k=3,"
    " max_new_tokens=64 (dl.methods() lists more). Of the model: device, dtype, device_map,"
    " quantization=4bit, layer, heads=[0,3], engine, tokenizer, sample=true, seed=1, and what"
    " from_pretrained takes. Of files: corpus_fields=id=doc_id,text=contents (of the passages),"
    " fields=question=q,answer=gold.",
    multiple=True,
    callback=read_settings,
)
method_options = join_options(
    option(
        "Method",
        "--method names",
        f"Of {', '.join(METHODS)}.",
        default="dragin",
        callback=split_names,
    ),
    option(
        "Method",
        "--threshold",
        "θ, above which a method retrieves; several stand between commas. Default: its own.",
        metavar="NUMBER",
        callback=read_thresholds,
    ),
    set_option,
)
lab_options = join_options(
    option(
        "Passages",
        "--corpus",
        "A built corpus, files of passages, hub:NAME; default the embedded ones.",
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
        "--limit",
        "Only the first N questions of each data set.",
        type=int,
        callback=check_count,
    ),
    lab_options,
    model_option,
    option("Run", "--batch-size", "Questions side by side.", default=1, callback=check_count),
)


def gather_settings(options: Mapping[str, Any]) -> Given:
    """What ``--set`` and ``--threshold`` say."""
    given: Given = options["given"]
    if options["threshold"] is None:
        return given
    if "threshold" in given:
        raise click.UsageError("--threshold and --set threshold: give one of the two")
    return {**given, "threshold": options["threshold"]}


def list_settings(name: str, variant: str | None, when: str | None, what: str | None) -> set[str]:
    """The settings of the method ``name``, where its parts may be others in their written form."""
    known = VARIANTS[0]
    if name in REFERENCE_METHODS and variant in VARIANTS:
        known = str(variant)
    forms = zip(TABLES[known], (when, what), METHODS[name], strict=True)
    settings = {*LOOP, "nlp"}
    for registry, form, own in forms:
        part, _ = registry.read(form or own)
        settings.update(setting_names(part))
    return settings


@cache
def list_own_settings() -> frozenset[str]:
    """All that ``--set`` may name beside what loads a model: of any method, and of files."""
    own = {*LOOP, "nlp", *_PARTS, *READING, *_SYMBOLS}
    for variant in VARIANTS:
        for registry in TABLES[variant]:
            for part in registry:
                own.update(setting_names(registry.named(part)))
    return frozenset(own)


def pick_variants(given: Given, of_files: bool = False) -> tuple[Any, ...]:
    """The variants that ``--set`` names: of a method, or ``of_files``, which a model may have too.

    Raises ``SettingError`` for what is nearly a method's.
    """
    chosen = []
    for variant in given.get("variant", ()):
        near = difflib.get_close_matches(str(variant), VARIANTS, n=1, cutoff=0.7)
        if near:
            choice("variant", variant, VARIANTS)
        if bool(near) != of_files:
            chosen.append(variant)
    return tuple(chosen)


def build_methods(
    names: Iterable[str],
    given: Given,
    published: Callable[[str], dict[str, Any]] = lambda name: {},
) -> list[Method]:
    """Every method in every combination of the settings that it takes, each once.

    ``published`` gives a method's settings where ``given`` leaves them open; else they are the
    method's own. Raises ``UsageError`` for a setting that no method takes, or that the methods do
    not measure alike.
    """
    methods: dict[Method, None] = {}
    known: set[str] = set()
    given = {**given, "variant": pick_variants(given) or (None,)}
    for name in names:
        own = published(name)
        for chosen in product(*(given.get(key, (None,)) for key in _PARTS)):
            variant, when, what = chosen
            settings = list_settings(name, variant or own.get("variant"), when, what)
            known |= settings
            stated = {
                key: value for key, value in zip(_PARTS, chosen, strict=True) if value is not None
            }
            keys = [key for key in given if key in settings]
            for values in product(*(given[key] for key in keys)):
                asked = stated | dict(zip(keys, values, strict=True))
                methods[dl.method(name, **merge_settings(own, name, asked))] = None
    for key in given.keys() & list_own_settings() - {*_PARTS, *READING}:
        _check_alike(key, given[key], methods, known)
    return list(methods)


def _check_alike(
    key: str, values: tuple[Any, ...], methods: Mapping[Method, None], known: set[str]
) -> None:
    """Refuse a setting that no method takes, and one that would mean different things to the
    methods.
    """
    option = f"--set {key}={','.join(map(str, values))}"
    if key not in known:
        near = _SYMBOLS.get(key) or "".join(difflib.get_close_matches(key, known, n=1))
        raise click.UsageError(
            f"{option}: none of the methods takes it" + f"; did you mean {near!r}?" * bool(near)
        )
    parts = {part for method in methods for part in (method.trigger, method.formulator)}
    meanings = {part.name for part in parts if part.settings.get(key) is not None}
    if key in ("threshold", "top_n", "n") and len(meanings) > 1:
        raise click.UsageError(
            f"{option}: {' and '.join(sorted(meanings))} do not measure alike; run the methods one"
            " by one"
        )


def pick_value(given: Given, name: str) -> Any:
    """The one value of a setting that takes no several."""
    values = given[name]
    if len(values) > 1:
        raise click.UsageError(
            f"--set {name}={','.join(map(str, values))}: takes one value; a list stands in"
            " brackets: heads=[0,3]"
        )
    return values[0]


def check_parts(options: dict[str, Any]) -> None:
    """Refuse a method, a model, a retriever or passages that cannot be, before torch is imported.

    Of passages that are built anew the first one is read.
    """
    for name in options["names"]:
        choice("method", name, METHODS)
    encoder = None if options["retriever"] is None else read_spec(options["retriever"])[1]
    for model in (options["model"], encoder or None, *options["given"].get("tokenizer", ())):
        check_name(model)
    source = options["corpus"]
    if is_embedded(source) or source.startswith("hub:"):
        return
    columns = read_fields(options["given"], "corpus_fields")
    if is_stored(as_path(source)):
        dl.Corpus.load(source, fields=columns)
    else:
        next(open_source(source, columns)[1], None)


def refuse_near(name: str) -> None:
    """Refuse what is nearly a method's setting, of so many letters that no argument of loading is
    nearly called so.
    """
    own = [setting for setting in list_own_settings() if len(setting) > 5]
    if near := difflib.get_close_matches(name, own, n=1, cutoff=0.8):
        raise click.UsageError(f"--set {name}: does not exist; did you mean {near[0]!r}?")


def read_loading(options: Mapping[str, Any]) -> dict[str, Any]:
    """What ``--set`` says of loading the model, as arguments of ``Lab``: all that is of nothing
    else, as in Python, so that ``from_pretrained`` may take it.
    """
    given: Given = options["given"]
    loading = {}
    for name in sorted(given.keys() - list_own_settings()):
        if name in signature(dl.Lab).parameters:
            raise click.UsageError(f"--set {name}: is no setting; see --help for the option")
        refuse_near(name)
        loading[name] = pick_value(given, name)
    if variants := pick_variants(given, of_files=True):
        loading["variant"] = pick_value({"variant": variants}, "variant")
    if isinstance(heads := loading.get("heads"), int):
        loading["heads"] = [heads]
    return loading


def read_fields(given: Given, name: str) -> str | None:
    """Names of fields, ``id=doc_id,text=contents``, whose commas ``--set`` took for its own."""
    return ",".join(given[name]) if name in given else None


def open_lab(options: dict[str, Any], **settings: Any) -> dl.Lab:
    given = options["given"]
    own = {key: options[key] for key in ("model", "corpus", "retriever", "layout")}
    own |= {"seed": pick_value(given, "seed")} if "seed" in given else {}
    fields = read_fields(given, "corpus_fields")
    return dl.Lab(**own, fields=fields, **read_loading(options), **settings)
