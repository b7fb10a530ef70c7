"""English function words, which `word2vec` leaves out: they are in every text and say little about it."""

from __future__ import annotations

__all__ = ["STOPWORDS"]

ARTICLES = (
    "a an the this that these those each every either neither both all any some no none such another other"
)
PRONOUNS = """
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves one oneself who whom whose which what whoever whatever
whichever someone somebody something anyone anybody anything everyone everybody everything nobody nothing
"""
VERBS = """
am is are was were be been being have has had having do does did doing done will would shall should can could may
might must ought
"""
PREPOSITIONS = """
about above across after against along among around as at before behind below beneath beside besides between
beyond by down during except for from in inside into like near of off on onto out outside over past per since
through throughout till to toward towards under until up upon via with within without
"""
CONJUNCTIONS = (
    "and but or nor so yet if because although though unless while whereas whether than then once lest"
)
ADVERBS = """
not only own same too very just also even still again further here there where when why how ever never now quite
rather almost already always often more most much many few less least several enough
"""
CONTRACTIONS = """
i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd she'll it's it'd it'll we're we've we'd
we'll they're they've they'd they'll that's there's here's what's who's where's how's let's isn't aren't wasn't
weren't haven't hasn't hadn't don't doesn't didn't won't wouldn't shan't shouldn't can't cannot couldn't mustn't
mightn't needn't
"""

STOPWORDS: frozenset[str] = frozenset(
    " ".join([ARTICLES, PRONOUNS, VERBS, PREPOSITIONS, CONJUNCTIONS, ADVERBS, CONTRACTIONS]).split()
)
