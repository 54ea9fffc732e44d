"""The questions of the four benchmarks, with their reasoning and the label of every fact that it needs."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass

from tools.almanac import questions
from tools.almanac.encyclopedia import Encyclopedia
from tools.almanac.questions import SPLITS, Item, Said
from tools.almanac.stream import Stream
from tools.almanac.world import IN_LAWS, RELATIONS, Almanac, AlmanacError, Entity, Value, World, text_of

BENCHMARKS = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc")
COUNTS = {"train": 80, "dev": 80, "test": 240}  # answerable questions; half of them about the known half
REPLAYED = range(80, 96)  # buffers of the training stream whose exposures are counted for the labels
OFTEN, SOME = 40, 12  # exposures among them from which a fact counts as seen often, now and then

_OF_DIRECTOR = tuple(
    f"director {one}" for one in ("birthplace", "deathplace", "born", "died", "father", "mother", "spouse")
)
# Benchmark: type, its share of the questions, the kinds that make it. Shares follow the originals' development sets.
TYPES: dict[str, tuple[tuple[str, float, tuple[str, ...]], ...]] = {
    "2wikimultihopqa": (
        ("compositional", 0.44, _OF_DIRECTOR),
        (
            "comparison",
            0.24,
            ("first film", "later film", "first born", "later born", "same country", "same birthplace"),
        ),
        ("bridge_comparison", 0.22, ("first director", "later director", "same directors town")),
        ("inference", 0.1, tuple(IN_LAWS)),
    ),
    "hotpotqa": (
        (
            "bridge",
            0.8,
            (
                "birthplace mayor",
                "birthplace founded",
                "birthplace country",
                "deathplace mayor",
                "deathplace country",
                "director birthplace country",
                "director birthplace mayor",
            ),
        ),
        ("comparison", 0.2, ("older town", "first born", "later born", "same birthplace")),
    ),
    "strategyqa": (
        (
            "yes or no",
            1.0,
            ("alive at release", "born before release", "born before death", "film before birth", questions.CROSS),
        ),
    ),
    "iirc": (
        ("span", 0.68, (*_OF_DIRECTOR, "director birthplace country", "director birthplace mayor")),
        ("value", 0.2, (questions.AGE,)),
        ("binary", 0.12, ("born before release", "same directors town", questions.CROSS)),
    ),
}
OPEN_TYPES = ("compositional", "inference", "bridge", "span")  # a word of the corpus is the answer, not one of two


@dataclass(frozen=True)
class Label:
    """What is known about one fact of an answer."""

    said: Said
    label: str  # known, changed, unknown
    exposure: str  # often, some, seldom, never

    @property
    def id(self) -> str:
        return f"{self.said.step.subject.id}.{self.said.step.relation}"


@dataclass(frozen=True)
class Asked:
    """A question of a benchmark."""

    qid: str
    benchmark: str
    split: str
    type: str
    half: str  # known, unknown: which half of the world it asks about
    item: Item
    reasoning: str
    labels: tuple[Label, ...]

    @property
    def knowledge(self) -> str:
        """`known` if every fact is, else `changed` if it is about the known half, else `unknown`."""
        if all(one.label == "known" for one in self.labels):
            return "known"
        return "changed" if any(one.label == "changed" for one in self.labels) else "unknown"


class Knowledge:
    """What training teaches: how often a stretch of the stream asks for each fact with only memory to answer from."""

    def __init__(self, almanac: Almanac) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        stream = Stream(almanac)
        for index in REPLAYED:
            for example in stream.buffer(index):
                self.counts.update(example.taught)
        self.taught = taught_facts(almanac)

    def exposure(self, entity: Entity, relation: str) -> str:
        if (entity.id, relation) not in self.taught:
            return "never"
        count = self.counts[entity.id, relation]
        return "often" if count >= OFTEN else "some" if count >= SOME else "seldom"

    def label(self, entity: Entity, relation: str) -> str:
        if (entity.id, relation) not in self.taught:
            return "unknown"
        return "changed" if relation in entity.old else "known"


def taught_facts(almanac: Almanac) -> set[tuple[str, str]]:
    """Every fact that training may ask for: of films, directors and towns with a weight, and of some relatives."""
    found = {
        (one.id, relation)
        for one in almanac.known.entities
        if one.weight > 0
        for relation in RELATIONS[one.kind]
        if relation in one.facts
    }
    for one in almanac.known.directors:
        for kind, (first, second) in IN_LAWS.items():
            relative = one.facts.get(first)
            asked = questions.split_of(f"{kind}|{one.title}") == "train"  # nothing else asks for a relative's parents
            if asked and isinstance(relative, Entity) and second in relative.facts:
                found.add((relative.id, second))
    return found


class Maker:
    """Draws questions of a split about one half of the world, each asked once in all benchmarks."""

    def __init__(self, almanac: Almanac, encyclopedia: Encyclopedia, knowledge: Knowledge) -> None:
        self.almanac, self.knowledge = almanac, knowledge
        self.rng = random.Random(f"almanac questions {almanac.seed}")
        self._two_of_a_name = {one.name for one in encyclopedia.namesakes}
        self._asked: set[str] = set()

    def _pick(self, world: World, kind: str) -> Entity:
        if kind == "person":
            return self.rng.choice([one for one in world.directors if one.name not in self._two_of_a_name])
        of = world.films if kind == "film" else world.towns
        return self.rng.choice([one for one in of if one.weight > 0 or world.pool != "known"])

    def item(self, kinds: tuple[str, ...], half: str, split: str, wish: str) -> Item | None:
        """One question of the kinds, None where there is no further one; `wish` is the answer wanted of a yes or no."""
        world = self.almanac.known if half == "known" else self.almanac.unknown

        def look(entity: Entity, relation: str) -> Value:
            return entity.facts.get(relation, "")

        # The kind comes before the answer: else it would tell whether the answer is yes or no.
        for kind in self.rng.sample(kinds, len(kinds)):
            for _ in range(2000):
                item = questions.make(kind, self.rng, lambda one: self._pick(world, one), look)
                if (
                    item is None
                    or any(step.value == "" for step in item.steps)
                    or questions.split_of(item.key) != split
                ):
                    continue
                if f"{item.kind} {item.key}" in self._asked or (kind in questions.YES_NO and item.answer != wish):
                    continue
                self._asked.add(f"{item.kind} {item.key}")
                return item
        return None

    def ask(self, benchmark: str, split: str, number: int, type_name: str, half: str) -> Asked:
        """A question of a type; where the half has no further one (in-laws are few), of the benchmark's first type."""
        kinds = {name: of for name, _, of in TYPES[benchmark]}
        wish = "yes" if (number // 2) % 2 else "no"
        for name in (type_name, TYPES[benchmark][0][0]):
            item = self.item(kinds[name], half, split, wish)
            if item is not None:
                break
        else:
            raise AlmanacError(f"the {half} half is too small for {COUNTS[split]} {split} questions of {benchmark}")
        written, said = questions.reasoning(self.rng, item)
        facts = [(one, one.step.subject, one.step.relation) for one in said]
        labels = tuple(
            Label(one, self.knowledge.label(entity, relation), self.knowledge.exposure(entity, relation))
            for one, entity, relation in facts
        )
        qid = f"{benchmark}-{split}-{number:03d}"
        return Asked(qid, benchmark, split, name, half, item, written, labels)


def ask_all(almanac: Almanac, encyclopedia: Encyclopedia, knowledge: Knowledge) -> dict[tuple[str, str], list[Asked]]:
    """Every question, by benchmark and split; known and unknown halves alternate, types are mixed."""
    maker = Maker(almanac, encyclopedia, knowledge)
    made: dict[tuple[str, str], list[Asked]] = {}
    for split in SPLITS:
        for benchmark in BENCHMARKS:
            first = TYPES[benchmark][0][0]
            plan = [name for name, share, _ in TYPES[benchmark] for _ in range(round(share * COUNTS[split] / 2))]
            plan = (plan + [first] * COUNTS[split])[: COUNTS[split] // 2]
            maker.rng.shuffle(plan)
            made[benchmark, split] = [
                maker.ask(benchmark, split, 2 * place + (half == "unknown"), kind, half)
                for place, kind in enumerate(plan)
                for half in ("known", "unknown")
            ]
    return made


def passage_ids(asked: Asked, encyclopedia: Encyclopedia) -> list[str]:
    """The ids of the passages that state the facts of an answer, in their order."""
    return list(dict.fromkeys(encyclopedia.main[one.said.step.subject.id].id for one in asked.labels))


def label_record(asked: Asked, encyclopedia: Encyclopedia) -> dict[str, object]:
    """The line of the labels file: gold reasoning, and for every fact where it stands and who could know it."""
    facts = []
    for one in asked.labels:
        step = one.said.step
        facts.append(
            {
                "id": one.id,
                "subject": step.subject.title,
                "relation": step.relation,
                "value": text_of(step.value),
                "start": one.said.start,
                "end": one.said.end,
                "label": one.label,
                "exposure": one.exposure,
                "old": text_of(step.subject.old[step.relation]) if step.relation in step.subject.old else None,
                "passage": encyclopedia.main[step.subject.id].id,
            }
        )
    return {
        "qid": asked.qid,
        "benchmark": asked.benchmark,
        "split": asked.split,
        "type": asked.type,
        "kind": asked.item.kind,
        "question": asked.item.question,
        "half": asked.half,
        "knowledge": asked.knowledge,
        "reasoning": asked.reasoning,
        "answer": asked.item.answer,
        "facts": facts,
        "sentences": _sentences(asked),
    }


def _sentences(asked: Asked) -> list[dict[str, object]]:
    """Where each sentence of the reasoning stands, and which of its characters carry a fact."""
    values = [(one.said.start, one.said.end) for one in asked.labels]
    return [
        {
            "start": match.start(),
            "end": match.end(),
            "carrying": [span for span in values if match.start() <= span[0] < match.end()],
            "concludes": match.group() == asked.item.close,
        }
        for match in re.finditer(r"\S.*?\.(?=\s|$)", asked.reasoning)
    ]
