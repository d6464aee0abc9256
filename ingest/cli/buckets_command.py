"""`tidemark buckets`."""

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.common.errors import printable


@click.command()
@options.TARGET
@click.option(
    "--for", "assignments", multiple=True, metavar="NAME=VALUE", help="A value of the request; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for programs.")
def buckets(target: str | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """Print the buckets that a request may see, by the lookups (materialized: bucket_lookup).

    `tidemark buckets --for user_id=42` queries the lookups with the parameter user_id alone, or with none.
    """
    from ingest.commands.bucket_lookup import find_grants

    pairs = [assignment.partition("=") for assignment in assignments]
    request = {name: value for name, _, value in pairs}
    if not all(name and equals_sign for name, equals_sign, _ in pairs):
        raise click.UsageError("Write --for NAME=VALUE.")
    if len(request) < len(pairs):
        raise click.UsageError("Give each name only once.")
    for grant in find_grants(open_lake(target, is_short_command=True).spark, request, target):
        click.echo(grant.to_json() if as_json else printable(grant.bucket))
