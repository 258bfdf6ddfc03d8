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
_UNSEEN = frozenset({"Mn", "Cf", "Me"})


def plain(text: str) -> str:
    """The text as it is compared: compatibility forms and letter case do not count."""
    return unicodedata.normalize("NFKC", text).casefold()


def skeleton(text: str) -> str:
    """The same for all texts that a reader may take for one another."""
    letters = plain(text)
    if not letters.isascii():
        bare = unicodedata.normalize("NFKD", letters)
        letters = "".join(one for one in bare if unicodedata.category(one) not in _UNSEEN)
    alike = letters.translate(_ALIKE).replace("rn", "m").replace("vv", "w")
    return re.sub(r"[\s._\-]", "", alike)
