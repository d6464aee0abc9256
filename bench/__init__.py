"""What Tidemark is measured by, beside what people would use in its place: `make bench`; see README.md."""
