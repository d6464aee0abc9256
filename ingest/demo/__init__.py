"""`tidemark demo`: real flights, an embedded Postgres, a lake, and a comparison of the two."""

from ingest.demo.scenario import run_demo

__all__ = ["run_demo"]
