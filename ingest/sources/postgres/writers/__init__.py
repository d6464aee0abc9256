"""Several stream writers of one Postgres source: which writer streams which table."""
