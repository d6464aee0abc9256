{#-
  A compacted log. An op that a later op of its object supersedes becomes a MOVE. All ops before a bucket's first live
  PUT are replaced by one CLEAR, with the op id of the last of them. MOVE and CLEAR have the checksums of the ops that
  they replace, so the bucket's checksum stays the same, from any CLEAR on. The log's last op keeps its op_id, so that
  a reader that has read everything can continue.

  The log is sorted, so that few files hold a bucket and statistics find them. No window covers a bucket: one may have
  millions of ops.
-#}
{% macro compacted_log(log_table) -%}
    with ops as (
        select
            *,
            op in ('PUT', 'REMOVE') and op_id < max(op_id) over (
                partition by bucket, object_type, object_id, row_key, if(op in ('PUT', 'REMOVE'), 0, op_id)
            ) as is_superseded,
            max(op_id) over (
                partition by bucket, object_type, object_id, row_key, if(op in ('PUT', 'REMOVE'), 0, op_id)
            ) as latest_op
        from {{ log_table }}
    ),

    first_puts as (
        select
            bucket,
            min(op_id) filter (where op = 'PUT' and not is_superseded) as first_put
        from ops
        group by bucket
    ),

    placed as (
        select
            ops.*,
            coalesce(ops.op_id < first_puts.first_put, true) as is_leading
        from ops
        inner join first_puts on ops.bucket = first_puts.bucket
    ),

    compacted as (
        select
            bucket,
            max(op_id) as op_id,
            'CLEAR' as op,
            cast(null as string) as object_type,
            cast(null as string) as object_id,
            cast(null as string) as row_key,
            cast(null as string) as data,
            sum(checksum) % 4294967296 as checksum,
            cast(null as bigint) as superseded_by,
            max(checkpoint_id) as checkpoint_id
        from placed
        where is_leading
        group by bucket

        union all

        select
            bucket,
            op_id,
            if(is_superseded, 'MOVE', op) as op,
            if(is_superseded, null, object_type) as object_type,
            if(is_superseded, null, object_id) as object_id,
            if(is_superseded, null, row_key) as row_key,
            if(is_superseded, null, data) as data,
            checksum,
            if(is_superseded, latest_op, superseded_by) as superseded_by,
            checkpoint_id
        from placed
        where not is_leading
    )

    select * from compacted
    order by bucket, op_id
{%- endmacro %}
