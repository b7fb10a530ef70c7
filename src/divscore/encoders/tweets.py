"""What is taken out of tweets before their words are looked up."""

from __future__ import annotations

import html
import re

__all__ = ["clean"]

ADDRESS = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
RETWEET = re.compile(r"^[\W_]*RT\b(?!['’])")
MENTION = re.compile(r"(?<!\w)@\w+")
HASHTAG = re.compile(r"#(?=\w)")
DIGITS = re.compile(r"(?<![\w'’])\d+(?![\w'’])")


def clean(text: str) -> str:
    """Decode HTML entities; drop web addresses, @mentions, a leading RT, the sign of hashtags, and bare digits.

    >>> clean("RT @maya: 2 many &amp; 2nite http://t.co/x1 #TooLate").split()
    [':', 'many', '&', '2nite', 'TooLate']
    """
    text = ADDRESS.sub(" ", html.unescape(text))
    text = RETWEET.sub(" ", text)
    text = HASHTAG.sub("", MENTION.sub(" ", text))
    return DIGITS.sub(" ", text)
