"""The source databases, and the one place that knows which kinds of them there are."""
