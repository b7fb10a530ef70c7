"""From audits to something people and programs read."""
