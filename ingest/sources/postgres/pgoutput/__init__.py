"""The pgoutput decoder: CopyData payloads become Arrow tables. It opens no connection and writes nothing.

It imports neither the lake nor the Postgres connection. What it needs from the catalog it asks of a `RelationRegistry`
that is passed in.
"""
