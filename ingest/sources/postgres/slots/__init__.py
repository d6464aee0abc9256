"""Replication slots: created, inspected, waited for, dropped."""
