"""`tidemark ops`."""

import click

from ingest.cli import options
from ingest.cli.lake_session import open_lake
from ingest.cli.terminal import print_line


@click.command()
@options.TARGET
@click.argument("definition")
@click.argument("bucket", default="[]")
@click.option(
    "--after", "after_op_id", type=click.IntRange(min=0), default=0, metavar="N", help="Only ops with a greater op_id."
)
def ops(target: str | None, definition: str, bucket: str, after_op_id: int) -> None:
    """Print the op log of a bucket as JSON lines, from one Iceberg snapshot, in the order of op_id.

    DEFINITION is the name of a bucket model; BUCKET its values as a JSON array, or the one value: `tidemark ops
    carrier_flights UA` (behind `--` if it begins with a dash). Applied in order by (object_type, object_id, row_key),
    the ops give the bucket's rows; a CLEAR deletes everything applied before it. `data` is the exact text of which
    `checksum` is computed.

    A bucket that never had a row has no ops: nothing is printed except a note on stderr.
    """
    from ingest.commands.op_log import is_known, make_bucket_name, read_ops

    spark, name = open_lake(target, is_short_command=True).spark, make_bucket_name(definition, bucket)
    is_empty = True
    for line in read_ops(spark, definition, name, after_op_id):
        click.echo(line)
        is_empty = False
    if is_empty and not is_known(spark, definition, name):
        print_line(f"tidemark: {name} never had a row.", err=True)
