"""What the answers of judges look like in a reply, and the words that stand around them in some languages."""

from __future__ import annotations

import re
import unicodedata

# A number with all its digits, points and commas; part of no word, no path and no longer number.
NUMBER = re.compile(r"(?<![\w.,/])[-\u2212]?(?:\d+(?:[.,]\d+)*|[.,]\d+)(?![^\W_]|[.,]\d)")
THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
DECIMALS = re.compile(r"\d*[.,]\d+|\d+")
# What a number is out of: "4/5", "4 out of 5", "4 von 5", "\frac{4}{5}", "85%".
OUT_OF = re.compile(
    r"[\s*_\"')\]}]*(?:/|\bout of\b|\bof\b|\bvon\b|\bsur\b|\bde\b|\}\{)[\s*_\"'(\[{]*(\d+(?:[.,]\d+)?)(?!\w)", re.I
)
COUNT = re.compile(r"[\s*_]*(?:of|von|de)\b", re.I)
PERCENT = re.compile(r"\s*\\?%")
# Between two answers of which the judge chose neither: "3-4", "3 to 4", "3, maybe 4", "Yes or No".
BETWEEN = re.compile(
    r"[\s*_\"')\]]*(?:[-\u2010-\u2015~/]|\b(?:to|or|and|bis|oder|und|maybe|perhaps|possibly)\b"
    r"|,\s*(?:or|maybe|perhaps|possibly)\b)[\s*_\"'(\[]*(?:(?:a|an|even|maybe|perhaps|possibly)\s+)?[\s*_\"'(\[]*",
    re.I,
)
# Words after a number that make it a grade and no count: "4 stars", "4 because ...".
AFTER_GRADE = re.compile(
    r"(?:stars?|points?|pts|sterne?|punkte?|puntos?|\u00e9toiles?|because|since|as|for|and|but|with|although|though|"
    r"given|due|is|it|its|the|this|that|which|there|would|seems|out|of|on|in|overall|von|sur|de|to|or|bis|oder|weil)\b",
    re.I,
)
# Words after Yes, No or a letter that do not go on with it, as "no errors" and "A dog" do.
AFTER_WORD = re.compile(
    r"(?:because|since|as|for|and|but|is|it|its|the|this|that|there|or|would|seems|i|we|weil|denn)\b", re.I
)
# Words that announce an answer, in some languages.
LABELS = (
    r"(?:\b(?:grades?|graded|score[sd]?|rating|rate[sd]?|mark|marks|answer|verdict|judge?ment|letter|choice|choose|option|"
    r"response|result|word|give|assign|deserves|conclusion|note|bewertung|punktzahl|urteil|antwort|r\u00e9ponse|"
    r"respuesta|nota|puntuaci\u00f3n|calificaci\u00f3n|punteggio|risposta|\u043e\u0446\u0435\u043d\u043a\u0430|"
    r"\u043e\u0442\u0432\u0435\u0442)\b|\u8bc4\u5206|\u5206\u6570|\u5f97\u5206|\u7b54\u6848|\u8a55\u4fa1|"
    r"\u30b9\u30b3\u30a2|\u56de\u7b54|\uc810\uc218|\ub2f5)"
)
# A label and nothing but a few words and marks up to the answer: "My grade: ", "I rate this caption a ", '{"score": '.
LABELLED = re.compile(rf"{LABELS}(?P<between>[^\d\n.!?;,]{{0,40}})$", re.I)
FINAL = re.compile(rf"\b(?:final|overall|therefore|thus|so)\b[^\d\n.!?;]{{0,20}}{LABELS}[^\d\n.!?;,]{{0,40}}$", re.I)
NO_LABEL = re.compile(
    r"\b(?:scale|from|between|range|most|least|maximum|minimum|max|min|lowest|highest|if|would be)\b", re.I
)
BOXED = re.compile(r"(?:\\boxed\s*\{(?:\\text\s*\{)?|<(?:answer|score|grade|rating|verdict)>)\s*[$*_\"'(\[]*$", re.I)
# What may stand before an answer at the beginning of a reply: marks, or words that end in a colon, equals sign or "is".
OPENING = re.compile(r"[^\w.,\-\u2212]*(?:[^\d:=\n]{1,60}(?:[:=]|\bis\b)[^\w.,\-\u2212]*)?")
LIST_ITEM = re.compile(r"^[ \t]*[(\[]?(\d{1,2})[.)\]][ \t]+(?=\S)", re.M)
MARKER_TOKEN = re.compile(r"<[|\uff5c/][^<>\s]*>|<0x[0-9A-Fa-f]{2}>|(?:\\x[0-9A-Fa-f]{2})+|<s>")
WIDE = str.maketrans("\uff1a\uff0f\uff05\uff08\uff09\uff0e\uff0c\uff1d", ":/%().,=")


def plain_digits(text: str) -> str:
    """A text with the digits of all scripts as 0 to 9 and wide marks as narrow ones; all else keeps its place.

    Example:
        >>> plain_digits("\\uff14\\uff0f\\uff15"), plain_digits("\\u0664")
        ('4/5', '4')
    """
    if text.isascii():
        return text
    digits = [str(unicodedata.decimal(character, character)) for character in text]
    return "".join(digits).translate(WIDE)
