"""Schema changes: the source's catalog is compared with the lake's tables and with the stream's relations."""
