"""`tidemark demo`: real flights, an embedded Postgres, a lake, and a comparison of the two."""

from ingest.demo.play import play

__all__ = ["play"]
