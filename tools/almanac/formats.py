"""Almanac's questions as records of the four original file formats, so that the loaders of the originals read them."""

from __future__ import annotations

import random
from typing import Any

from tools.almanac import questions
from tools.almanac.benchmarks import Asked, Label
from tools.almanac.encyclopedia import Encyclopedia, Entry
from tools.almanac.questions import Step
from tools.almanac.world import Almanac, Entity, text_of

PARAGRAPHS = 6  # in a context of 2WikiMultihopQA and HotpotQA, gold ones included
_NAMES_OF = {
    "born": "date of birth",
    "birthplace": "place of birth",
    "died": "date of death",
    "deathplace": "place of death",
    "year": "publication date",
    "country": "country",
    "founded": "inception",
    "mayor": "head of government",
}
Record = dict[str, Any]


def _entry(label: Label, encyclopedia: Encyclopedia) -> Entry:
    return encyclopedia.main[label.said.step.subject.id]


def _sentence(entry: Entry, value: str) -> int:
    """The first sentence of a passage that states a value."""
    return next(number for number, one in enumerate(entry.sentences) if value in one)


def _supporting(asked: Asked, encyclopedia: Encyclopedia) -> list[tuple[str, int]]:
    found = []
    for one in asked.labels:
        entry = _entry(one, encyclopedia)
        found.append((entry.title, _sentence(entry, text_of(one.said.step.value))))
    return list(dict.fromkeys(found))


def _context(rng: random.Random, asked: Asked, encyclopedia: Encyclopedia) -> list[Entry]:
    gold = list(dict.fromkeys(_entry(one, encyclopedia) for one in asked.labels))
    others = encyclopedia.distractors(rng, [one.title for one in gold], max(2, PARAGRAPHS - len(gold)))
    mixed = [*gold, *others]
    rng.shuffle(mixed)
    return mixed


def _answer_entity(asked: Asked) -> Entity | None:
    """The entity that the answer names, if it names one."""
    last = asked.item.steps[-1].value
    candidates = [*asked.item.about, *([last] if isinstance(last, Entity) else [])]
    return next((one for one in candidates if one.title == asked.item.answer), None)


def twowiki(asked: Asked, encyclopedia: Encyclopedia, rng: random.Random) -> Record:
    """A record of 2WikiMultihopQA's dev.json."""
    steps = [one.said.step for one in asked.labels]
    named = _answer_entity(asked)
    return {
        "_id": asked.qid,
        "type": asked.type,
        "question": asked.item.question,
        "context": [[one.title, one.sentences] for one in _context(rng, asked, encyclopedia)],
        "entity_ids": "_".join(dict.fromkeys(one.subject.id for one in steps)),
        "supporting_facts": [list(one) for one in _supporting(asked, encyclopedia)],
        "evidences": [
            [one.subject.title, _NAMES_OF.get(one.relation, one.relation), text_of(one.value)] for one in steps
        ],
        "answer": asked.item.answer,
        "evidences_id": [[one.subject.id, _NAMES_OF.get(one.relation, one.relation), _id_of(one)] for one in steps],
        "answer_id": named.id if named else None,
    }


def _id_of(step: Step) -> str:
    return (
        step.value.id if isinstance(step.value, Entity) else "date_information" if step.value.isdigit() else step.value
    )


def aliases(almanac: Almanac) -> list[Record]:
    """The lines of id_aliases.json: other ways to name an entity."""
    lines = []
    for one in almanac.entities:
        other = [one.title]
        if one.kind == "person":
            first, last = one.name.split()
            other.append(f"{first[0]}. {last}")
        elif one.kind == "film":
            other += [one.name, f"The film {one.title}"]
        else:
            other.append(f"Town of {one.name}")
        lines.append({"Q_id": one.id, "aliases": list(dict.fromkeys(other)), "demonyms": []})
    return lines


def hotpot(asked: Asked, encyclopedia: Encyclopedia, rng: random.Random) -> Record:
    """A record of HotpotQA's distractor file; sentences after the first begin with a space."""
    context = [
        [one.title, [sentence if number == 0 else f" {sentence}" for number, sentence in enumerate(one.sentences)]]
        for one in _context(rng, asked, encyclopedia)
    ]
    return {
        "_id": asked.qid,
        "answer": asked.item.answer,
        "question": asked.item.question,
        "supporting_facts": [list(one) for one in _supporting(asked, encyclopedia)],
        "context": context,
        "type": asked.type,
        "level": "hard",
    }


def paragraph_id(entry: Entry, encyclopedia: Encyclopedia) -> str:
    """StrategyQA's id of a paragraph: its title and which of the title's paragraphs it is."""
    same = [one.id for one in encyclopedia.entries if one.title == entry.title]
    return f"{entry.title}-{same.index(entry.id)}"


def strategy(asked: Asked, encyclopedia: Encyclopedia) -> Record:
    """A record of strategyqa_train.json."""
    decomposition: list[str] = []
    before: dict[str, int] = {}
    for number, one in enumerate(asked.labels, 1):
        step = one.said.step
        question = questions.single(random.Random(0), step).question
        if step.subject.title in before:
            question = question.replace(step.subject.title, f"#{before[step.subject.title]}")
        decomposition.append(question)
        before[text_of(step.value)] = number
    ends = [f"#{number}" for number, one in enumerate(asked.labels, 1) if not isinstance(one.said.step.value, Entity)]
    last = "Are {} and {} the same?" if asked.item.kind == questions.CROSS else "Is {} before {}?"
    subject = asked.item.about[0]
    evidence: list[list[Any]] = [[[paragraph_id(_entry(one, encyclopedia), encyclopedia)]] for one in asked.labels]
    return {
        "qid": asked.qid,
        "term": subject.title,
        "description": {"film": "film", "person": "film director", "town": "town"}[subject.kind],
        "question": asked.item.question,
        "answer": asked.item.answer == "yes",
        "facts": [_fact_sentence(one.said.step) for one in asked.labels],
        "decomposition": [*decomposition, last.format(*ends[-2:])],
        "evidence": [[*evidence, ["operation"]]],
    }


def _fact_sentence(step: Step) -> str:
    return f"The {_NAMES_OF.get(step.relation, step.relation)} of {step.subject.title} is {text_of(step.value)}."


def paragraphs(asked: list[Asked], encyclopedia: Encyclopedia) -> Record:
    """strategyqa_train_paragraphs.json, restricted to the paragraphs that the questions name."""
    entries = {one.id: one for question in asked for one in (_entry(label, encyclopedia) for label in question.labels)}
    found: Record = {}
    for entry in sorted(entries.values(), key=lambda one: int(one.id)):
        name = paragraph_id(entry, encyclopedia)
        index = int(name.rsplit("-", 1)[1])
        found[name] = {"title": entry.title, "section": "", "headers": [], "para_index": index, "content": entry.text}
    return found


def iirc(asked: list[Asked], unanswerable: list[tuple[str, Entity]], encyclopedia: Encyclopedia) -> list[Record]:
    """IIRC's nested dev.json: passages with the questions asked about them. `unanswerable`: question and its film."""
    passages: dict[str, Record] = {}

    def passage(entity: Entity) -> Record:
        entry = encyclopedia.main[entity.id]
        if entry.id not in passages:
            passages[entry.id] = {
                "pid": f"p_{entry.id}",
                "title": entry.title,
                "text": entry.text,
                "links": [],
                "questions": [],
            }
        return passages[entry.id]

    def link(record: Record, title: str) -> None:
        if title not in [one["target"] for one in record["links"]]:
            at = record["text"].find(title)
            record["links"].append({"target": title, **({"indices": [at, at + len(title)]} if at >= 0 else {})})

    for one in asked:
        record = passage(one.item.about[0])
        linked = []
        context = []
        for label in one.labels:
            step, entry = label.said.step, _entry(label, encyclopedia)
            sentence = entry.sentences[_sentence(entry, text_of(step.value))]
            main = entry.title == record["title"]
            start = entry.text.index(sentence)
            context.append(
                {
                    "text": sentence,
                    "passage": "main" if main else entry.title,
                    "indices": [start, start + len(sentence)],
                }
            )
            if not main and entry.title not in linked:
                linked.append(entry.title)
                link(record, entry.title)
        record["questions"].append(
            {
                "qid": one.qid,
                "question": one.item.question,
                "answer": _iirc_answer(one),
                "question_links": linked,
                "context": context,
            }
        )
    for number, (question, film) in enumerate(unanswerable):
        director = film.facts["director"]
        record = passage(film)
        link(record, text_of(director))
        first = asked[0]
        record["questions"].append(
            {
                "qid": f"iirc-{first.split}-none-{number:03d}",
                "question": question,
                "answer": {"type": "none"},
                "question_links": [text_of(director)],
                "context": [],
            }
        )
    return list(passages.values())


def _iirc_answer(asked: Asked) -> Record:
    if asked.type == "span":
        last = asked.item.steps[-1].subject.title
        return {"type": "span", "answer_spans": [{"text": asked.item.answer, "passage": last}]}
    if asked.type == "value":
        return {"type": "value", "answer_value": asked.item.answer, "answer_unit": "years"}
    return {"type": "binary", "answer_value": asked.item.answer}


_NOWHERE = (
    "How many brothers had the director of {s}?",
    "What was the budget of the film {s}?",
    "At which school did the director of {s} study?",
    "Which language did the mother of the director of {s} speak?",
)


def unanswerable(almanac: Almanac, split: str, count: int) -> list[tuple[str, Entity]]:
    """Questions whose answer no passage states, half about known films."""
    rng = random.Random(f"almanac unanswerable {almanac.seed} {split}")
    made: dict[str, tuple[str, Entity]] = {}
    while len(made) < count:
        world = almanac.known if len(made) % 2 == 0 else almanac.unknown
        film = rng.choice(world.films)
        if questions.split_of(f"nowhere|{film.title}") == split:
            made.setdefault(film.title, (rng.choice(_NOWHERE).format(s=film.title), film))
    return list(made.values())
