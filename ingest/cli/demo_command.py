"""`tidemark demo`."""

import click


@click.command()
@click.option("--seconds", default=20.0, show_default=True, help="How long the steady state is measured.")
@click.option("--rate", default=500, show_default=True, help="Row changes per second.")
def demo(seconds: float, rate: int) -> None:
    """Replicate real flights from an embedded Postgres while they change, and compare the lake with the source.

    Then one definition is changed and rebuilt alone. The lake stays for inspection.
    """
    from ingest.demo import run_demo

    run_demo(seconds, rate)
