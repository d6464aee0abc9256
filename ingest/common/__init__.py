"""What every other package uses: records, errors, row keys, findings. Imports nothing of Tidemark."""
