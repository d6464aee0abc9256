"""What `tidemark check` examines of a Postgres source. Changes nothing."""
