"""The sections of docs/performance.md: what each benchmark's file says, as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tools.pages.base import Row as Found
from tools.pages.base import markdown_table


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    return [*markdown_table(head, rows).splitlines(), ""]


def show_capture(found: Found) -> list[str]:
    head = ("model", "parameters", "prompt + tokens", "rounds", "capture / bare loop", "/ no attention", "/ `generate`")
    rows = [
        (
            one["model"],
            f"{one['parameters'] / 1e6:.1f} M",
            f"{one['prompt']} + {one['tokens']}",
            one["rounds"],
            *(f"{one['over'][way]:.3f} ({one['over_cpu'][way]:.3f})" for way in ("bare", "untapped", "generate")),
        )
        for one in found["decoding"]
    ]
    return [*table(head, rows), "In brackets: processor time.", ""]


def show_served(found: Found) -> list[str]:
    head = (
        "method",
        "engine",
        "processor s / question",
        "tokens / processor s",
        "tokens",
        "retrievals",
        "drafts alike",
    )
    rows = [
        (
            method,
            engine,
            f"{one['cpu_s'] / found['questions']:.1f}",
            f"{one['tokens_per_cpu_s']:.1f}",
            one["tokens"],
            one["retrievals"],
            f"{one['drafts_alike']} of {one['drafts']}",
        )
        for method, engines in found["methods"].items()
        for engine, one in engines.items()
    ]
    return [
        *table(head, rows),
        f"{found['model']}, {found['questions']} questions of HotpotQA, paper variant, as many threads each "
        f"({found['threads']}). *Drafts alike*: of the drafts after the same prompt as in float32, those with the same "
        "text and decision. llama.cpp rounds activations too, so it is another model in the last digits.",
        "",
    ]


def show_episode(found: Found) -> list[str]:
    head = (
        "variant",
        "θ, top n",
        "n",
        "ours / naive",
        "ours / plain",
        "naive / plain",
        "on an empty cache",
        "retrievals",
    )
    rows, fed = [], []
    for one in found["episodes"]:
        over, name = one["over"], f"{one['variant']}, {one['settings']}"
        rows.append(
            (
                name,
                f"{one['threshold']}, {one['top_n']}",
                one["questions"],
                f"{over['ours']['naive']:.2f}",
                f"{over['ours']['plain']:.2f}",
                f"{over['naive']['plain']:.2f}",
                f"{over['first']['naive']:.2f} / {over['first']['plain']:.2f}",
                f"{one['retrievals']:.2f}",
            )
        )
        ways = (f"{one['forwards'][way]:.0f} ({one['fed'][way]:.0f})" for way in ("ours", "first", "naive", "plain"))
        made = (f"{one[key]:.0f}" for key in ("tokens_kept", "tokens_generated", "tokens_generated_naive"))
        fed.append((name, *made, *ways))
    lines = [
        f"{found['exemplars']} exemplars, drafts of at most {found['max_new_tokens']} tokens. *Plain* is one "
        "`generate` of the tokens that are kept, *naive* the released code's way (`benchmarks/naive.py`), with the "
        "same answers.",
        "",
        *table(head, rows),
        "What does not depend on the machine, a question: tokens kept and generated, and forwards (tokens fed).",
        "",
    ]
    head = ("variant", "kept", "generated", "naive", "ours", "on an empty cache", "naive", "plain")
    return lines + table(head, fed)


def show_batch(found: Found) -> list[str]:
    head = (
        "method",
        "variant",
        "questions",
        "side by side / alone",
        "processor time",
        "prompts from cache",
        "differences",
    )
    rows = []
    for one in found["batch"]:
        reused = [n / one["prompt_tokens"] for n in one["prompt_tokens_reused"].values()]
        over = (f"{one[kind]['alone']:.2f}" for kind in ("over", "over_cpu"))
        cache = f"{reused[0]:.0%} alone, {reused[1]:.0%} side by side"
        rows.append((one["method"], one["variant"], one["questions"], *over, cache, len(one["differences"])))
    return table(head, rows) + _differences(found)


def show_same(found: Found) -> list[str]:
    head = ("method", "variant", "questions", "tokens generated", "differences")
    rows = [
        (one["method"], one["variant"], one["questions"], f"{one['generated']:,}", len(one["differences"]))
        for one in found["batch"]
    ]
    return table(head, rows) + _differences(found)


def _differences(found: Found) -> list[str]:
    listed = [
        f"- {one['method']}, {one['variant']}: {place['question']}: {place['where']}"
        + ("" if place["allowed"] else " (**not** a matter of rounding)")
        for one in found["batch"]
        for place in one["differences"]
    ]
    listed += [f"- {which}: left out. {why}" for which, why in found.get("left_out", {}).items()]
    return [*listed, ""] if listed else []


def show_sweep(found: Found) -> list[str]:
    head = ("variant", "θ", "n", "five / one", "processor time", "without a store", "tokens made", "drafts served")
    rows = []
    for one in found["sweeps"]:
        stored, first, *_, last = one["stored"], *one["thresholds"]
        drafts = stored["drafts_served"] + stored["drafts_made"] + stored["drafts_outgrown"]
        rows.append(
            (
                one["variant"],
                f"{first:g} to {last:g}",
                one["questions"],
                f"{one['kept_over_one']:.2f}",
                f"{one['kept_over_one_cpu']:.2f}",
                f"{one['anew_over_one']:.2f}",
                f"{one['tokens_made_over_one']:.2f}",
                f"{stored['drafts_served']} of {drafts}",
            )
        )
    return [*table(head, rows), "All over the middle θ alone. With a store and without, the predictions are equal.", ""]


def show_memory(found: Found) -> list[str]:
    one = found["peak"]
    most, above = one["peak_MiB"], one["above_MiB"]
    head = (
        "layers",
        "capture adds, multiply-adds",
        "of",
        "processor µs a token",
        "capture / without",
        "processor time",
    )
    rows = [
        (
            row["layers"],
            f"{row['added_multiply_adds']:,}",
            f"{row['multiply_adds']:,}",
            f"{row['added_cpu_us_a_token']:.0f}",
            f"{row['over']:.3f}",
            f"{row['over_cpu']:.3f}",
        )
        for row in found["layers"]
    ]
    return [
        f"A random Llama of {one['parameters'] / 1e6:.0f} M parameters ({one['layers']} layers, {one['heads']} heads), "
        f"{one['prompt']:,} + {one['tokens']} tokens, {one['rounds']} rounds in processes of their own: "
        f"{most['capture']:.0f} MiB at most with capture and {most['generate']:.0f} MiB with plain `generate`; "
        f"above the loaded model {above['capture']:.0f} and {above['generate']:.0f} MiB "
        f"({one['above_over']:.3f} x). The attention kept is {one['kept_MiB']:.1f} MiB of it.",
        "",
        *table(head, rows),
    ]


def show_growth(found: Found) -> list[str]:
    head = ("context", "capture / `generate`", "capture / without", "ms a token", "attention kept")
    rows = [
        (
            f"{row['prompt']:,} + {row['tokens']}",
            f"{row['capture_over_generate']:.3f} ({row['capture_over_generate_cpu']:.3f})",
            f"{row['capture_over_untapped']:.3f} ({row['capture_over_untapped_cpu']:.3f})",
            f"{row['ms_a_token']:.1f}",
            f"{row['kept_MiB']:.1f} MiB",
        )
        for row in found["context"]
    ]
    lines = [*table(head, rows), "In brackets: processor time.", ""] if rows else []
    head = ("questions", "one after another / each alone", "side by side / each alone", "prompts from cache")
    rows = [
        (
            row["questions"],
            f"{row['alone_over_single']:.2f}",
            f"{row['side_over_single']:.2f}",
            f"{row['reused']['alone']:.0%}, {row['reused']['side']:.0%} side by side",
        )
        for row in found["questions"]
    ]
    return lines + (table(head, rows) if rows else [])


def show_latency(found: Found) -> list[str]:
    head = ("method", "n", "exemplars read", "first token", "/ plain", "first decision", "answer", "/ plain")
    rows = []
    for one in found["asked"]:
        for way, ms in one["median_ms"].items():
            if way != "plain":
                over = one["over_plain"][way]
                first, decided, answer = (f"{ms[name]:.0f} ms" for name in ("token", "decision", "answer"))
                read = "before" if way == "warm" else "with it"
                name = f"{one['method']}, {one['variant']}"
                of = (f"{over['token']:.2f}", decided, answer, f"{over['answer']:.2f}")
                rows.append((name, one["questions"], read, first, *of))
    return [*table(head, rows), f"The model and the passages are loaded in {found['load_s']:.1f} s before that.", ""]


def show_gpu(found: Found) -> list[str]:
    shape = found["shape"]
    head = ("side by side", "capture", "without attention", "`generate`", "limit", "capture / without", "/ `generate`")
    rows = [
        (
            one["episodes"],
            *(f"{one['tokens_a_second'][way]:.0f}" for way in ("capture", "untapped", "generate")),
            f"{one['limit_tokens_a_second']['weights and cache']:.0f}",
            *(f"{one['capture_over'][way]:.2f}" for way in ("untapped", "generate")),
        )
        for one in found["decoding"]
    ]
    return [
        f"{found['machine']['device']}, {shape['layers']} layers, hidden {shape['hidden']}, {shape['dtype']}, random "
        f"weights; a copy moves {found['bandwidth_bytes_a_second'] / 1e9:.0f} GB/s. Tokens a second.",
        "",
        *table(head, rows),
    ]


def show_views(found: Found) -> list[str]:
    rows = [
        (row["view"], f"{row['tokens']:,}", row["drafts"], f"{row['wall_ms']:.0f}", f"{row['kB']:.0f}")
        for row in found["views"]
    ]
    return table(("view", "tokens", "drafts", "ms", "kB"), rows)


def show_corpus(found: Found) -> list[str]:
    head = ("passages", "", "built, processor s", "by the clock s", "peak MiB", "on disk MiB", "query ms")
    rows, notes = [], []
    for one in found["corpora"]:
        for what, name in (("ours", "dragin_lab"), ("bare", "bare tantivy")):
            made, query = one[what], one["search"][f"{what}_ms"]
            sizes = (f"{made[key]:,.0f}" for key in ("peak_MiB", "stored_MiB"))
            rows.append(
                (
                    f"{one['passages']:,}",
                    name,
                    f"{made['cpu_seconds']:.1f}",
                    f"{made['seconds']:.1f}",
                    *sizes,
                    f"{query:.1f}",
                )
            )
        searched = one["search"]
        notes.append(
            f"{one['passages']:,} passages: opened in {searched['open_seconds']:.1f} s, "
            f"{searched['resident_MiB']:.0f} MiB resident while searching, checked in full in "
            f"{one['check']['seconds']:.0f} s."
        )
    said = "Processor time is that of all threads, and what the first table compares."
    return [*table(head, rows), " ".join([said, *notes]), ""]


def show_anything(found: Found) -> list[str]:
    """A file that this script knows nothing about: every number with the names that lead to it."""
    skipped = {key: value for key, value in found.items() if key not in ("machine", "budgets")}
    return table(("what", "value"), [(f"`{name}`", value) for name, value in _numbers(skipped)])


def _numbers(value: Any, name: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _numbers(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _numbers(one, f"{name}[{place}]")
    elif isinstance(value, bool | str):
        yield name, str(value)
    elif isinstance(value, int | float):
        yield name, f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
