"""The decoder: CopyData payloads of pgoutput become Arrow record batches. Opens no connection, writes nothing."""
