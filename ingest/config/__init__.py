"""`sources.yml` and the settings of the jobs: read, validated, frozen."""
