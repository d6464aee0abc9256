"""Positions in a source's log, tokens, work in flight and the rules for several writers. Pure."""
