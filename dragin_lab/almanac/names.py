"""Names of Almanac: real first names, invented surnames and towns, film titles; each name belongs to one pool.

The pool is decided by a hash of the name, so it holds for every seed: `known` names may be memorised, `fresh` names are
drawn anew for every training example, `unknown` names stand only in the corpus that users search.
"""

from __future__ import annotations

import random
from functools import cache
from hashlib import blake2b

POOLS = ("known", "fresh", "unknown")
_SHARES = {
    "surname": (14, 76),
    "town": (12, 76),
    "title": (6, 84),
    "thing": (6, 84),
}  # percent: known below, fresh below

FEMALE = ("Ada", "Agnes", "Alma", "Anna", "Beatrice", "Bella", "Celia", "Clara", "Cora", "Daisy", "Dora", "Edith", "Elena", "Ella", "Emma", "Esther", "Eva", "Flora", "Grace", "Greta", "Hanna", "Helen", "Ida", "Ines", "Irene", "Jane", "Julia", "Laura", "Lena", "Lily", "Lucy", "Maria", "Martha", "Mina", "Nora", "Olga", "Rosa", "Ruth", "Sara", "Vera")
MALE = ("Adam", "Albert", "Alfred", "Anton", "Arthur", "Bruno", "Carl", "Conrad", "David", "Edgar", "Edwin", "Emil", "Ernest", "Felix", "Frank", "Fred", "George", "Gustav", "Hans", "Harold", "Henry", "Hugo", "Jacob", "John", "Karl", "Leo", "Louis", "Martin", "Max", "Oscar", "Otto", "Paul", "Peter", "Ralph", "Robert", "Simon", "Theo", "Thomas", "Victor", "Walter")
_SURNAME_HEADS = ["Bel", "Bran", "Bro", "Cal", "Cor", "Cre", "Dar", "Del", "Dor", "Dra", "Dun", "Fal", "Fen", "Fre", "Gal", "Gor", "Gra", "Har", "Hol", "Hul", "Jar", "Jen", "Kel", "Kor", "Kra", "Lan", "Lor", "Lun", "Mal", "Mar", "Mor", "Nar", "Nol", "Nur", "Or", "Pal", "Per", "Pra", "Quin", "Ral", "Ror", "Rus", "Sal", "Sel", "Sto", "Tal", "Tar", "Tor", "Tre", "Ul", "Val", "Ver", "Vol", "Wen", "Wil", "Yar", "Yel", "Zan", "Zor"]
_SURNAME_TAILS = ["bask", "brix", "dane", "dreth", "fell", "fax", "gant", "gild", "hane", "kesh", "lath", "leth", "lune", "mere", "mirr", "moth", "nesk", "nock", "pell", "quil", "rask", "reth", "rosk", "sable", "sen", "shaw", "stane", "thal", "thorn", "tock", "vane", "vell", "vess", "vick", "wane", "wend", "wisk", "yore", "zell"]
_TOWN_HEADS = ["Alder", "Amber", "Ash", "Barley", "Birch", "Black", "Briar", "Clay", "Cold", "Copper", "Crane", "Deep", "Elm", "Falcon", "Fern", "Flint", "Frost", "Glass", "Gray", "Hart", "Hazel", "Heron", "High", "Iron", "Kettle", "Linden", "Long", "Maple", "Moss", "Oak", "Otter", "Plum", "Raven", "Red", "Rowan", "Salt", "Silver", "Stone", "Swan", "Thorn", "West", "White", "Willow", "Wolf"]
_TOWN_TAILS = ["barrow", "beck", "bourne", "brook", "by", "cliff", "combe", "dale", "fold", "garth", "gate", "haven", "holm", "hurst", "keld", "ley", "mead", "mere", "moor", "mouth", "ness", "pool", "reach", "rigg", "shaw", "stead", "thwaite", "wick", "worth", "wyke"]
_TITLE_ADJECTIVES = ["Amber", "Ashen", "Barefoot", "Bitter", "Borrowed", "Brass", "Broken", "Careless", "Clever", "Cloudy", "Counted", "Crimson", "Crooked", "Curious", "Distant", "Drowned", "Dusty", "Eighth", "Empty", "Endless", "Faithful", "Final", "Forgotten", "Friendly", "Frozen", "Gentle", "Gilded", "Golden", "Hasty", "Hidden", "Hollow", "Honest", "Hungry", "Idle", "Ivory", "Jealous", "Last", "Lazy", "Little", "Lonely", "Lost", "Marble", "Merry", "Midnight", "Modest", "Nameless", "Narrow", "Ninth", "Painted", "Pale", "Paper", "Patient", "Polite", "Proud", "Quiet", "Reckless", "Restless", "Rusty", "Salted", "Scarlet", "Second", "Secret", "Seventh", "Silent", "Sleeping", "Solemn", "Stolen", "Stubborn", "Sunken", "Tender", "Thirsty", "Tidy", "Tin", "Twin", "Unpaid", "Velvet", "Wandering", "Weary", "Winter", "Wooden"]
_TITLE_NOUNS = ["Acrobat", "Alibi", "Anchor", "Apprentice", "Astronomer", "Baker", "Balcony", "Barber", "Barometer", "Beekeeper", "Bellringer", "Bicycle", "Blanket", "Bookshop", "Bridge", "Butterfly", "Candle", "Caravan", "Carousel", "Cartographer", "Cellar", "Chimney", "Clockmaker", "Cobbler", "Compass", "Corridor", "Courier", "Diary", "Dragonfly", "Envelope", "Ferryman", "Fiddler", "Fountain", "Gardener", "Glacier", "Guesthouse", "Harbour", "Harvest", "Heirloom", "Horizon", "Inheritance", "Innkeeper", "Island", "Juggler", "Kingfisher", "Ladder", "Lantern", "Ledger", "Lighthouse", "Locksmith", "Lullaby", "Magician", "Magpie", "Mapmaker", "Meadow", "Meridian", "Miller", "Mirror", "Nightingale", "Notebook", "Orchard", "Organist", "Parade", "Pavilion", "Piano", "Pilgrim", "Postman", "Quarry", "Rainbow", "Regatta", "River", "Rooftop", "Sailor", "Shepherd", "Snowfall", "Sparrow", "Staircase", "Stranger", "Suitcase", "Surveyor", "Tailor", "Telegram", "Theatre", "Timetable", "Tunnel", "Umbrella", "Verdict", "Village", "Violin", "Watchman", "Waterfall", "Weathervane", "Wedding", "Widow", "Windmill", "Witness"]
COUNTRIES = ["Abrosia", "Belmark", "Calvenia", "Dorvia", "Estoria", "Faldonia", "Gravonia", "Helvaria", "Istrana", "Jorvland", "Karstia", "Lumeria", "Moravelle", "Nordavia", "Ostrana", "Pellonia", "Quessia", "Rovania", "Sardovia", "Talvania", "Urmland", "Vestria", "Wolmark", "Xandria", "Yvoria", "Zembria", "Brenland", "Corvania", "Drumland", "Ellmark"]
GENRES = ("comedy", "drama", "crime", "war", "fantasy", "musical", "mystery", "romance")
JOBS = (
    "painter",
    "novelist",
    "composer",
    "physician",
    "botanist",
    "teacher",
    "merchant",
    "lawyer",
    "sculptor",
    "banker",
)


def pool_of(kind: str, name: str) -> str:
    """The pool of a surname, town, title or thing; the same for every seed."""
    known, fresh = _SHARES[kind]
    number = int.from_bytes(blake2b(f"{kind}:{name}".encode(), digest_size=4).digest(), "big") % 100
    return "known" if number < known else "fresh" if number < fresh else "unknown"


@cache
def pool(kind: str, name: str) -> tuple[str, ...]:
    """All names of one kind (`surname`, `town`, `title`, `thing`) in the pool called `name`, in a fixed order."""
    if kind == "surname":
        every = [a + b for a in _SURNAME_HEADS for b in _SURNAME_TAILS if a[-1] != b[0]]
    elif kind == "town":
        every = [a + b for a in _TOWN_HEADS for b in _TOWN_TAILS if a.lower() != b and a[-1] != b[0]]
    elif kind == "title":
        every = [f"The {a} {b}" for a in _TITLE_ADJECTIVES for b in _TITLE_NOUNS]
    else:
        every = [f"{a} and {b}" for a in _TITLE_NOUNS for b in _TITLE_NOUNS if a != b]
    return tuple(one for one in every if pool_of(kind, one) == name)


def first_name(rng: random.Random, female: bool) -> str:
    return rng.choice(FEMALE if female else MALE)


def any_person(rng: random.Random, pool_name: str) -> str:
    """A name of nobody in particular, for sentences that do not matter."""
    return f"{first_name(rng, rng.random() < 0.5)} {rng.choice(pool('surname', pool_name))}"
