"""divscore inside other people's libraries, and theirs inside divscore."""
