"""From items to vectors; each encoder is imported where it is used."""
