"""What every surface calls: engines, encoding, caching, embedding, sketching and auditing a source."""
