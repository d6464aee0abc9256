"""What a kind of source provides to the pipeline; each kind implements it, and knows no other kind."""
