"""The readings of docs/almanac.md and docs/triggers.md: each figure and comparison is that of the page's tables."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragin_lab import almanac
from dragin_lab.almanac import embedded_model_path
from dragin_lab.data.datasets import BENCHMARKS
from tools.pages.base import READING

ROOT = Path(__file__).parents[2]
#: Of the readings' words those that hold digits and are no figures.
NAMES = re.compile(r"F1|`[^`]*`")
Claim = tuple[str, bool]  # a text of the reading that its figures are read into, and whether its comparison holds


@dataclass(frozen=True)
class Page:
    """A page's reading, and its tables by heading: row name -> column name -> cell."""

    reading: str
    tables: dict[str, list[dict[str, dict[str, str]]]]
    rest: str

    @classmethod
    def read(cls, path: Path) -> Page:
        before, between = path.read_text(encoding="utf-8").split(READING[0])
        reading, after = between.split(READING[1])
        tables: dict[str, list[dict[str, dict[str, str]]]] = {}
        heading = ""
        for block in after.split("\n\n"):
            if block.lstrip().startswith("#"):
                heading = block.strip().lstrip("# ").strip("`")
            elif block.startswith("| "):
                columns, _, *rows = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in
                                     block.strip().splitlines())  # fmt: skip
                named = {row[0].strip("`"): dict(zip(columns, row, strict=True)) for row in rows}
                tables.setdefault(heading, []).append(named)
        return cls(" ".join(reading.split()), tables, before + after)

    def cell(self, heading: str, row: str, column: str, number: int = 0) -> str:
        """A cell by the beginnings of its heading and column, or by the whole of them."""
        cells = self.table(heading, number)[row]
        (name,) = [name for name in cells if name == column or name.startswith(f"{column} (")]
        return cells[name]

    def table(self, heading: str, number: int = 0) -> dict[str, dict[str, str]]:
        named = heading if heading in self.tables else next(one for one in self.tables if one.startswith(heading))
        return self.tables[named][number]

    def check(self, claims: Sequence[Claim]) -> None:
        """All texts stand in the reading, what they compare holds, and no figure stands outside of them."""
        left = self.reading
        for text, holds in claims:
            assert text in self.reading, text
            assert holds, text
            left = left.replace(text, "")
        assert re.findall(r"[^.;:]*\d[^.;:]*", NAMES.sub("", left)) == []


def value(cell: str) -> float:
    return float(cell.split()[0])


def bounds(cell: str) -> tuple[float, float]:
    low, high = re.search(r"\[([^,]+), ([^\]]+)\]", cell).groups()  # type: ignore[union-attr]
    return float(low), float(high)


def sure(cell: str) -> int:
    """1 or -1 where the interval of a difference lies on one side of 0; else 0."""
    low, high = bounds(cell)
    return 1 if low > 0 else -1 if high < 0 else 0


def short(cell: str, digits: int = 3) -> str:
    return f"{value(cell):.{digits}f}"


def test_the_reading_of_almanac_is_that_of_its_tables() -> None:
    page = Page.read(ROOT / "docs" / "almanac.md")
    sharp = ("rind", "rind-reference", "entropy", "margin", "probability", "probability-first")

    def area(trigger: str, column: str = "ROC area") -> str:
        return page.cell("When", trigger, column)

    def fires(trigger: str, taught: str) -> float:
        return value(page.cell("When", trigger, taught, 2))

    def sentence(trigger: str) -> str:
        return short(page.cell("When", trigger, "ROC area", 3))

    def asked(formulator: str) -> str:
        return page.cell("What", formulator, "reference: recall@3")

    def answered(method: str, column: str = "exact match", form: str = "All four") -> str:
        return page.cell(form, method, column)

    def ahead(other: str, method: str = "DRAGIN", form: str = "all four") -> str:
        return page.cell("Paired", f"{method} − {other}", form)

    def known(method: str) -> float:
        return float(re.search(r"\((.+)\)", answered(method, "retrievals"))[1])  # type: ignore[index]

    tried = {float(theta): float(em) for theta, em in
             re.findall(r"([\d.]+): ([\d.]+) \(", page.cell("Thresholds", "DRAGIN", "tried"))}  # fmt: skip
    plateau = [em for theta, em in tried.items() if 0.5 <= theta <= 2]
    questions = 4 * int(re.search(r"chosen on (\d+) development questions", page.rest)[1])  # type: ignore[index]
    seldom, silent = ([fires(t, taught) for t in sharp] for taught in ("seldom", "often"))
    silent += [fires(t, "some") for t in sharp]
    methods = page.table("All four")
    counts = {name.split()[0]: int(name[:-1].split()[-1]) for name in methods["DRAGIN"] if "(n =" in name}
    wrong = sum(counts[kind] * (1 - value(answered("DRAGIN", kind))) for kind in ("known", "changed", "unknown"))
    right_share, found = re.match(r"([\d.]+) \(n = (\d+)\)", answered("DRAGIN", "exact match where all found")).groups()  # type: ignore[union-attr]
    elsewhere = (1 - float(right_share)) * int(found) + counts["known"] * (1 - value(answered("DRAGIN", "known")))
    card = (embedded_model_path() / "README.md").read_text(encoding="utf-8")
    held, rivals = "DRAGIN, at most 1.6", ("wo-RAG", "FLARE", "SR-RAG", "FL-RAG", "FS-RAG")
    page.check([
        (f"on {max(silent):.3f} of them or fewer", True),
        (f"on {min(fires(t, 'never') for t in sharp):.3f} or more of the facts never taught", True),
        (f"in {min(seldom):.2f} to {max(seldom):.2f} of the cases", min(seldom) > 5 * max(silent)),
        (f"their areas are {min(value(area(t, 'area without half-known')) for t in sharp):.3f} and more", True),
        (f"FLARE's mean over a sentence ({short(area('probability-sentence'))}) and ETC's trend "
         f"({short(area('entropy-trend'))}) are less sharp",
         max(value(area(t)) for t in ("probability-sentence", "entropy-trend")) < min(value(area(t)) for t in sharp)),
        (f"attention alone is near chance ({short(area('attention'))}), and so is attention as the released code reads "
         f"it ({short(area('attention-reference'))})",
         all(abs(value(area(t)) - 0.5) < 0.05 for t in ("attention", "attention-reference"))),
        (f"{short(area('capitalised', 'own view'))} for the doubt about runs of capitals and numbers, "
         f"{short(area('rind-reference', 'own view'))} for the released RIND, {short(area('entropy', 'own view'))} for "
         f"entropy, {short(area('entropy-trend', 'own view'))} for ETC's trend", True),
        (f"No area is larger there, and attention ({short(area('attention', 'own view'))}) and `random` "
         f"({short(area('random', 'own view'))}) come to less than chance",
         all(value(area(t, "own view")) <= value(area(t)) for t in page.table("When"))
         and max(value(area(t, "own view")) for t in ("attention", "random")) < 0.5),
        ("asked three heads of the layer that RIND reads", "three of the last layer" in card),
        (f"margin falls from {short(area('margin'))} to {sentence('margin')}, the released RIND from "
         f"{short(area('rind-reference'))} to {sentence('rind-reference')}",
         all(float(sentence(t)) < value(area(t)) for t in ("margin", "rind-reference"))),
        (f"The paper's RIND rises to {sentence('rind')} and entropy to {sentence('entropy')}",
         all(float(sentence(t)) > value(area(t)) for t in ("rind", "entropy"))),
        (f"entropy catches {fires('entropy', 'changed, own view'):.3f} in its own view, the released RIND "
         f"{fires('rind-reference', 'changed, own view'):.3f}", True),
        ("The doubt about capitals and `probability` catch all of them",
         fires("capitalised", "changed, own view") == fires("probability", "changed, own view") == 1),
        (f"finds the passage {short(asked('qfs'))} of the time, far ahead of the question "
         f"({short(asked('question'))}), the last sentence ({short(asked('last-sentence'))}) and the "
         f"whole context ({short(asked('full-context'))})",
         all(bounds(page.cell("What", f, "reference: QFS minus it"))[0] > 0.2
             for f in ("question", "last-sentence", "full-context"))),
        (f"The sentence being written is close behind it ({short(asked('current'))}), and best without its doubtful "
         f"words ({short(asked('current-without-hits'))})",
         0 < bounds(page.cell("What", "current", "reference: QFS minus it"))[0] < 0.01
         and value(asked("current-without-hits")) == max(value(asked(f)) for f in page.table("What"))),
        ("every sentence of Almanac's reasoning names its subject",
         all("{s}" in text for texts in almanac.wordings().values() for text in texts)),
        (f"DRAGIN answers {short(answered('DRAGIN'))} at {short(answered('DRAGIN', 'retrievals'), 2)} retrievals: "
         f"ahead of no retrieval by {short(ahead('wo-RAG'))}, of FLARE by {short(ahead('FLARE'))}, of SR-RAG by "
         f"{short(ahead('SR-RAG'))} and of FL-RAG, which retrieves {short(answered('FL-RAG', 'retrievals'), 2)} times, "
         f"by {short(ahead('FL-RAG'))}, all clear of 0", all(sure(ahead(other)) == 1 for other in rivals[:4])),
        (f"FS-RAG, which retrieves {short(answered('FS-RAG', 'retrievals'), 2)} times, answers as many "
         f"({short(answered('FS-RAG'))})", sure(ahead("FS-RAG")) == 0),
        (f"Held to 1.6 retrievals on development it answers {short(answered(held))} at "
         f"{short(answered(held, 'retrievals'), 2)}, still clear of the first three and behind the other two",
         [sure(ahead(other, held)) for other in rivals] == [1, 1, 1, -1, -1]),
        (f"do better than the released code for less: {short(answered('DRAGIN, paper variant'))} at "
         f"{short(answered('DRAGIN, paper variant', 'retrievals'), 2)}", sure(ahead("DRAGIN, paper variant")) == -1),
        (f"FLARE as published leads with {short(answered('FLARE, paper variant'))} at "
         f"{short(answered('FLARE, paper variant', 'retrievals'), 2)}",
         value(answered("FLARE, paper variant")) == max(value(answered(m)) for m in methods)),
        ("FL-RAG and FS-RAG are ahead by intervals clear of 0, and so is DRAGIN's own paper variant",
         all(sure(ahead(o, form="hotpotqa")) == -1 for o in ("FL-RAG", "FS-RAG", "DRAGIN, paper variant"))),
        (f"There the released code finds {short(answered('DRAGIN', 'found', 'hotpotqa'))} of what it needed, the paper "
         f"variant {short(answered('DRAGIN, paper variant', 'found', 'hotpotqa'))}", True),
        (f"on known questions DRAGIN answers {short(answered('DRAGIN', 'known'))}, no retrieval "
         f"{short(answered('wo-RAG', 'known'))}",
         value(answered("DRAGIN", "known")) > value(answered("wo-RAG", "known"))),
        (f"It retrieves {known('DRAGIN'):.2f} times on them and {short(answered('DRAGIN', 'retrievals'), 2)} times on "
         f"all; the paper variant retrieves {known('DRAGIN, paper variant'):.2f} times instead of "
         f"{short(answered('DRAGIN, paper variant', 'retrievals'), 2)}", True),
        (f"Where DRAGIN found all that it needed, {float(right_share):.3f} are right, and it found "
         f"{short(answered('DRAGIN', 'found'))} of it. Most of its wrong answers are to questions of which it did not "
         "find everything", elsewhere < wrong / 2),
        (f"from 0.5 to 2 DRAGIN answers {min(plateau):.2f} to {max(plateau):.2f}, which {questions} questions cannot "
         "tell apart", max(plateau) - min(plateau) < 1.96 * math.sqrt(min(plateau) * (1 - min(plateau)) / questions)),
        (f"at 3 it answers {tried[3]:.2f}, at 4 {tried[4]:.2f}", tried[4] < tried[3] < min(plateau)),
    ])  # fmt: skip


def test_the_reading_of_triggers_is_that_of_its_tables() -> None:
    page = Page.read(ROOT / "docs" / "triggers.md")
    stored = json.loads((ROOT / "notebooks" / "almanac_triggers.json").read_text(encoding="utf-8"))
    two = {row["method"]: row for row in stored["frontier"] if row["budget"] == 2}
    facts = [len(label.facts) for name in BENCHMARKS for label in almanac.labels(name)]
    table = page.table("All triggers")
    once = ("prefix-margin", "prefix-entropy", "corpus-question")
    whole_row = ("entropy", "renyi-2", "fisher-rao", "self-certainty")

    def at(trigger: str, column: str = "exact match at 1") -> str:
        return page.cell("All triggers", trigger, column)

    def lead(rival: str, budget: str) -> str:
        return page.cell("The fitted trigger", f"fitted-smollm2` − `{rival}", f"exact match at {budget}", 1)

    def changed(trigger: str) -> str:
        return page.cell("Does the corpus see", trigger, "own text: changed facts among known")

    def call(method: str, column: str) -> str:
        return page.cell("Models that ask", method, column)

    oracle, without = (re.search(text, page.rest)[1] for text in (  # type: ignore[index]
        r"With an oracle's \*when\*: (.*)\.\n", r"Without retrieval: ([\d.]+)"))  # fmt: skip
    # Rows of these two tables have the same name.
    shares = re.findall(r"\| `almanac-prototype` \| `[^|]+\| [\d.]+ \| [\d.]+ \| ([\d.]+) \|", page.rest)
    row = r"\| (?:Almanac|SmolLM2) \| (Almanac|SmolLM2) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|"
    tests = {(model, features): cells for model, features, *cells in re.findall(row, page.rest)}

    def on(model: str, features: str = "default") -> str:
        return short(tests[model, features][0])

    ahead = [tests[model, "default"][1 + rival].strip() for rival in (0, 1) for model in ("SmolLM2", "Almanac")]
    page.check([
        (f"At one retrieval per question `random` reaches an exact match of {short(at('random'))}, RIND "
         f"{short(at('rind'))}, entropy {short(at('entropy'))} and the fitted trigger {short(at('fitted'))}; without "
         f"retrieval it is {without}, and an oracle reaches {short(oracle)} with {oracle.split()[-2]}", True),
        (f"Fitted on Almanac it has an area of {on('SmolLM2')} on SmolLM2's facts, fitted on SmolLM2's answers "
         f"{on('Almanac')} on Almanac. That is ahead of RIND ({ahead[0]} and {ahead[1]}) and of entropy ({ahead[2]} "
         f"and {ahead[3]})", [sure(one) for one in ahead] == [1, 1, 1, 1]),
        (f"In the loop the one from SmolLM2 is not clearly apart from RIND at one retrieval ({lead('rind', '1')}) and "
         f"ahead of it at two ({lead('rind', '2')}); it is ahead of entropy at one and at 1.5, which is as far as "
         "entropy comes",
         [sure(lead("rind", "1")), sure(lead("rind", "2"))] == [0, 1]
         and sure(lead("entropy", "1")) == sure(lead("entropy", "1.5")) == 1 and lead("entropy", "2") == "–"),
        (f"The nine features that were the default before have {on('SmolLM2', 'nine, most in nats')} and "
         f"{on('Almanac', 'nine, most in nats')}, ranks {on('SmolLM2', 'ranks')} and {on('Almanac', 'ranks')}",
         sure(tests["Almanac", "nine, most in nats"][1]) == 0),
        (f"`max-probability` answers {short(at('max-probability'))} at one retrieval, and its area on SmolLM2 "
         f"({short(at('max-probability', 'area, SmolLM2'))}) is above that of each trigger that reads the whole "
         "distribution",
         all(value(at("max-probability", "area, SmolLM2")) > value(at(one, "area, SmolLM2")) for one in whole_row)),
        (f"its areas are {short(at('attention', 'area, own view'))} and {short(at('attention', 'area, SmolLM2'))}, and "
         f"its answers ({short(at('attention'))}) hardly more than those of `random`",
         value(at("attention")) - value(at("random")) < 0.03),
        (f"Changed facts in the model's own text have an area of {short(changed('corpus'))} by `corpus` and "
         f"{short(changed('rind'))} by RIND. At 1.5 retrievals it answers {short(at('corpus', 'exact match at 1.5'))}, "
         f"as RIND ({short(at('rind', 'exact match at 1.5'))})",
         bounds(changed("corpus"))[0] > bounds(changed("rind"))[1]
         and abs(value(at("corpus", "exact match at 1.5")) - value(at("rind", "exact match at 1.5"))) < 0.01),
        (f"RIND answers {short(at('rind', 'exact match at 1.5'))} at 1.5 retrievals and {two['rind']['em']:.3f} at "
         f"{two['rind']['retrievals']:.2f}, the fitted trigger {short(at('fitted', 'exact match at 1.5'))} and "
         f"{two['fitted']['em']:.3f}", two["rind"]["em"] < two["fitted"]["em"] - 0.1),
        (f"FLARE-instruct asks in vain in {call('flare-instruct', 'over-search')} of its calls and misses "
         f"{call('flare-instruct', 'under-search')} of the missing facts; self-ask misses none, and "
         f"{call('self-ask', 'over-search')} of its calls are in vain", float(call("self-ask", "under-search")) == 0),
        (f"every question needs two facts or more, and the triggers that decide once answer {short(at(once[0]))}",
         min(facts) == 2 and len({short(at(one)) for one in once}) == 1
         and all(at(one, "exact match at 1.5") == "–" for one in once)),
        (f"lets RIND fire in {shares[1]} of the drafts instead of {shares[0]}",
         float(shares[1]) < 0.1 < float(shares[0])),
    ])  # fmt: skip
    assert sum("–" not in (cells["exact match at 1"], cells["area, SmolLM2"]) for cells in table.values()) >= 20
