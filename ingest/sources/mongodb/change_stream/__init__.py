"""The change stream: its reader, its decoder, and the feed of the stream writer."""
