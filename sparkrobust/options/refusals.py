"""Keys of Hudi that would change what is stored or promised, and that we can't serve."""

from __future__ import annotations

from sparkrobust.options.option import Refusal

_W = "hoodie.datasource.write."
_OFF = ("", "false")

REFUSED = (
    Refusal(
        key="hoodie.populate.meta.fields",
        harmless=("", "true"),
        reason="a table without meta columns is not supported",
    ),
    Refusal(
        key=f"{_W}drop.partition.columns",
        harmless=_OFF,
        reason="data files always keep their partition columns",
    ),
    Refusal(key="hoodie.table.cdc.enabled", harmless=_OFF, reason="change data capture is not supported"),
    Refusal(
        key="hoodie.table.format", harmless=("", "native"), reason="other table formats are not supported"
    ),
    Refusal(
        key="hoodie.table.multiple.base.file.formats.enable", harmless=_OFF, reason="data files are parquet"
    ),
    Refusal(key="hoodie.schema.on.read.enable", harmless=_OFF, reason="schema on read is not supported"),
    Refusal(key="hoodie.write.schema", reason="the rows' own schema is used: cast the DataFrame instead"),
    Refusal(key="hoodie.write.partial.update.schema", reason="partial updates are not supported"),
    Refusal(key="hoodie.table.partial.update.mode", reason="partial updates are not supported"),
    Refusal(key=f"{_W}partitions.to.delete", reason="deleting partitions is not supported"),
    Refusal(key="hoodie.bootstrap.base.path", reason="bootstrap is not supported"),
    Refusal(
        key="hoodie.clustering.inline",
        harmless=_OFF,
        aliases=("hoodie.datasource.clustering.inline.enable",),
        reason="clustering is not supported",
    ),
    Refusal(key="hoodie.clustering.schedule.inline", harmless=_OFF, reason="clustering is not supported"),
    Refusal(key="hoodie.partition.ttl.inline", harmless=_OFF, reason="expiring partitions is not supported"),
    Refusal(
        key="hoodie.write.record.merge.strategy.id",
        aliases=(
            "hoodie.record.merge.strategy.id",
            f"{_W}record.merger.strategy",
            "hoodie.compaction.record.merger.strategy",
        ),
        harmless=("", "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", "ce9acb64-bde0-424c-9b91-f6ebba25356d"),
        reason="own mergers are not supported: set hoodie.write.record.merge.mode",
    ),
    Refusal(
        key="hoodie.write.record.merge.custom.implementation.classes",
        aliases=(f"{_W}record.merger.impls",),
        harmless=(
            "",
            "org.apache.hudi.common.model.hoodieavrorecordmerger",
            "org.apache.hudi.hoodiesparkrecordmerger",
            "org.apache.hudi.defaultsparkrecordmerger",
            "org.apache.hudi.overwritewithlatestsparkrecordmerger",
        ),
        reason="own mergers are not supported: set hoodie.write.record.merge.mode",
    ),
    Refusal(key="hoodie.precommit.validators", reason="validators are Java classes, which can't be run here"),
    Refusal(
        key="hoodie.write.commit.callback.on", harmless=_OFF, reason="commit callbacks are not supported"
    ),
    Refusal(
        key="hoodie.bulkinsert.user.defined.partitioner.class",
        reason="partitioners are Java classes, which can't be run here: sort the DataFrame, "
        "or set hoodie.bulkinsert.sort.mode",
    ),
    Refusal(
        key="hoodie.write.table.version",
        harmless=("", "9"),
        reason="new tables have version 9, and existing ones keep theirs: leave the key out",
    ),
    Refusal(
        key="hoodie.write.complex.keygen.new.encoding",
        harmless=_OFF,
        reason="the key of a complex generator with one field is always spelled `field:value`",
    ),
    Refusal(
        key="hoodie.parquet.outputtimestamptype",
        harmless=("", "timestamp_micros"),
        reason="timestamps are stored in microseconds",
    ),
    Refusal(
        key="hoodie.parquet.writelegacyformat.enabled",
        harmless=_OFF,
        reason="the legacy layout is not written",
    ),
)

READ_REFUSED = (
    Refusal(key="as.of.instant", reason="time travel is not supported"),
    Refusal(key="hoodie.datasource.read.begin.instanttime", reason="incremental reading is not supported"),
    Refusal(key="hoodie.datasource.read.end.instanttime", reason="incremental reading is not supported"),
    Refusal(
        key="hoodie.datasource.query.incremental.format",
        harmless=("", "latest_state"),
        reason="change data capture is not supported",
    ),
    Refusal(
        key="hoodie.datasource.read.paths",
        reason="a table is read as a whole: filter by its partition fields",
    ),
    Refusal(key="hoodie.schema.on.read.enable", harmless=_OFF, reason="schema on read is not supported"),
)
