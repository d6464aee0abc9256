"""BSON documents as canonical Extended JSON, one by one or many at once. Pure."""
