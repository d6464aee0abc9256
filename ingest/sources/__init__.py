"""The source databases, and `source_kinds`, the only module that knows all kinds of them."""
