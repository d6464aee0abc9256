"""What Postgres's system catalogs say of tables and publications."""
