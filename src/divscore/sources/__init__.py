"""A path or an object becomes a Table of vectors or Items to encode; nothing is loaded whole."""

from divscore.sources.items import Items
from divscore.sources.recognise import open, open_pictures, open_table
from divscore.sources.table import Block, Table

__all__ = ["Block", "Items", "Table", "open", "open_pictures", "open_table"]
