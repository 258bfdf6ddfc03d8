"""What a reader takes for the same: letters of other alphabets, and digits, that look like Latin
letters.

After the idea of the skeleton of Unicode Technical Standard 39, with the letters that occur in
names, addresses and domains.
"""

import re
import unicodedata

_ALIKE = str.maketrans(
    {
        "а": "a", "в": "b", "с": "c", "ԁ": "d", "е": "e", "ѐ": "e", "ё": "e", "ғ": "f", "ԍ": "g",
        "һ": "h", "н": "h", "і": "l", "ї": "l", "ј": "j", "к": "k", "ӏ": "l", "м": "m", "п": "n",
        "о": "o", "р": "p", "ԛ": "q", "г": "r", "ѕ": "s", "т": "t", "ц": "u", "ѵ": "v", "ԝ": "w",
        "х": "x", "у": "y", "α": "a", "β": "b", "ϲ": "c", "δ": "d", "ε": "e", "η": "n", "ι": "l",
        "κ": "k", "μ": "m", "ν": "v", "ο": "o", "ρ": "p", "σ": "o", "τ": "t", "υ": "u", "χ": "x",
        "γ": "y", "ω": "w", "ա": "w", "օ": "o", "ս": "u", "հ": "h", "ո": "n", "ց": "g", "ѡ": "w",
        "ɑ": "a", "ɡ": "g", "ı": "l", "ƅ": "b", "ø": "o", "đ": "d", "ł": "l", "ħ": "h", "ɩ": "l",
        "0": "o", "1": "l", "i": "l", "|": "l", "!": "l", "3": "e", "5": "s", "$": "s", "8": "b",
    }
)  # fmt: skip


_PUNYCODE = re.compile(r"\bxn--([a-z0-9-]{1,59})(?![a-z0-9-])", re.IGNORECASE)


def plain(text: str) -> str:
    """The text as it is compared: compatibility forms and letter case do not count."""
    return unicodedata.normalize("NFKC", text).casefold()


def skeleton(text: str) -> str:
    """The same for all texts that a reader may take for one another."""
    seen = shown(plain(text))
    letters = seen if seen.isascii() else _letters(seen)
    alike = letters.translate(_ALIKE).replace("rn", "m").replace("vv", "w")
    return re.sub(r"[\s._\-]", "", alike)


def shown(text: str) -> str:
    """The text with domains as a browser shows them."""
    return _PUNYCODE.sub(_as_shown, text)


def _as_shown(label: re.Match[str]) -> str:
    """A part of a domain as a browser shows it (RFC 3492); as it stands where it is none."""
    try:
        return label[1].encode().decode("punycode")
    except UnicodeError:
        return label[0]


def _letters(text: str) -> str:
    bare = unicodedata.normalize("NFKD", plain(text))
    return "".join(one for one in bare if unicodedata.category(one) not in {"Mn", "Cf", "Me"})
