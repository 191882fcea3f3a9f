"""Keys of Hudi 1.1.1 that we know and do not need: accepted, and said once.

They steer what only Hudi has (its timeline server, the memory of its JVM, the parallelism of its own
shuffles) or services that we do not run.  Listed from Hudi's own classes; keys only.
"""

from __future__ import annotations

FAMILIES = (
    "hoodie.aws.",
    "hoodie.deltastreamer.",
    "hoodie.gcp.",
    "hoodie.meta.sync.datahub.",
    "hoodie.record.merge.property.",
    "hoodie.streamer.",
    "hoodie.write.lock.dynamodb.",
)
"""Beginnings of keys that come from other modules of Hudi, or whose ends are the user's."""

KEYS = frozenset(
    """
    hoodie.combine.before.upsert hoodie.combine.before.delete
    hoodie.insert.shuffle.parallelism hoodie.upsert.shuffle.parallelism hoodie.delete.shuffle.parallelism
    hoodie.parquet.compression.ratio hoodie.rollback.using.markers
    hoodie.allow.empty.commit hoodie.allow.operation.metadata.field hoodie.archive.async
    hoodie.archive.automatic hoodie.archive.beyond.savepoint hoodie.archive.delete.parallelism
    hoodie.archivelog.folder hoodie.auto.adjust.lock.configs hoodie.avro.schema
    hoodie.avro.schema.external.transformation hoodie.avro.schema.externaltransformation
    hoodie.avro.schema.validate hoodie.avro.write.support.class hoodie.base.file.format hoodie.base.path
    hoodie.bloom.index.bucketized.checking
    hoodie.bloom.index.bucketized.checking.enable.dynamic.parallelism
    hoodie.bloom.index.fileid.key.sorting.enable hoodie.bloom.index.filter.dynamic.max.entries
    hoodie.bloom.index.filter.type hoodie.bloom.index.input.storage.level
    hoodie.bloom.index.keys.per.bucket hoodie.bloom.index.parallelism hoodie.bloom.index.prune.by.ranges
    hoodie.bloom.index.update.partition.path hoodie.bloom.index.use.caching
    hoodie.bloom.index.use.metadata hoodie.bloom.index.use.treebased.filter
    hoodie.bootstrap.data.queries.only hoodie.bootstrap.full.input.provider hoodie.bootstrap.index.class
    hoodie.bootstrap.index.enable hoodie.bootstrap.index.type hoodie.bootstrap.mode.selector
    hoodie.bootstrap.mode.selector.regex hoodie.bootstrap.mode.selector.regex.mode
    hoodie.bootstrap.parallelism hoodie.bootstrap.partitionpath.translator.class
    hoodie.bucket.index.hash.field hoodie.bucket.index.max.num.buckets
    hoodie.bucket.index.merge.threshold hoodie.bucket.index.min.num.buckets
    hoodie.bucket.index.num.buckets hoodie.bucket.index.partition.expressions
    hoodie.bucket.index.partition.rule.type hoodie.bucket.index.query.pruning
    hoodie.bucket.index.remote.partitioner.enable hoodie.bucket.index.split.threshold
    hoodie.bulkinsert.are.partitioner.records.sorted hoodie.bulkinsert.overwrite.operation.type
    hoodie.bulkinsert.schema.ddl hoodie.bulkinsert.sort.suffix.record_key
    hoodie.bulkinsert.user.defined.partitioner.sort.columns
    hoodie.cdc.file.group.iterator.memory.spill.bytes hoodie.clean.allow.multiple hoodie.clean.async
    hoodie.clean.async.enabled hoodie.clean.automatic hoodie.clean.commits.retained
    hoodie.clean.delete.bootstrap.base.file hoodie.clean.fileversions.retained
    hoodie.clean.hours.retained hoodie.clean.incremental.enabled hoodie.clean.max.commits
    hoodie.clean.multiple.enabled hoodie.clean.parallelism hoodie.clean.policy
    hoodie.clean.trigger.max.commits hoodie.clean.trigger.strategy hoodie.cleaner.commits.retained
    hoodie.cleaner.delete.bootstrap.base.file hoodie.cleaner.fileversions.retained
    hoodie.cleaner.hours.retained hoodie.cleaner.incremental.mode hoodie.cleaner.parallelism
    hoodie.cleaner.policy
    hoodie.client.init.callback.classes
    hoodie.clustering.async.enabled hoodie.clustering.async.max.commits
    hoodie.clustering.execution.strategy.class hoodie.clustering.group.read.parallelism
    hoodie.clustering.inline.max.commits hoodie.clustering.max.parallelism
    hoodie.clustering.plan.partition.filter.mode
    hoodie.clustering.plan.strategy.binary.copy.schema.evolution.enable
    hoodie.clustering.plan.strategy.class hoodie.clustering.plan.strategy.cluster.begin.partition
    hoodie.clustering.plan.strategy.cluster.end.partition
    hoodie.clustering.plan.strategy.daybased.lookback.partitions
    hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions
    hoodie.clustering.plan.strategy.max.bytes.per.group hoodie.clustering.plan.strategy.max.num.groups
    hoodie.clustering.plan.strategy.partition.regex.pattern
    hoodie.clustering.plan.strategy.partition.selected
    hoodie.clustering.plan.strategy.single.group.clustering.enabled
    hoodie.clustering.plan.strategy.small.file.limit hoodie.clustering.plan.strategy.sort.columns
    hoodie.clustering.plan.strategy.target.file.max.bytes
    hoodie.clustering.rollback.pending.replacecommit.on.conflict hoodie.clustering.updates.strategy
    hoodie.commits.archival.batch hoodie.common.diskmap.compression.enabled
    hoodie.common.spillable.diskmap.type hoodie.compact.inline hoodie.compact.inline.max.delta.commits
    hoodie.compact.inline.max.delta.seconds hoodie.compact.inline.trigger.strategy
    hoodie.compact.merge.handle.class hoodie.compact.schedule.inline
    hoodie.compaction.daybased.target.partitions hoodie.compaction.lazy.block.read
    hoodie.compaction.logfile.num.threshold hoodie.compaction.logfile.size.threshold
    hoodie.compaction.partition.path.regex hoodie.compaction.plan.generator
    hoodie.compaction.reverse.log.read hoodie.compaction.strategy hoodie.compaction.target.io
    hoodie.consistency.check.enabled hoodie.consistency.check.initial_interval_ms
    hoodie.consistency.check.max_checks hoodie.consistency.check.max_interval_ms
    hoodie.datasource.clustering.async.enable hoodie.datasource.compaction.async.enable
    hoodie.datasource.hive_sync.auto_create_database hoodie.datasource.hive_sync.base_file_format
    hoodie.datasource.hive_sync.batch_num hoodie.datasource.hive_sync.bucket_sync
    hoodie.datasource.hive_sync.bucket_sync_spec hoodie.datasource.hive_sync.create_managed_table
    hoodie.datasource.hive_sync.database hoodie.datasource.hive_sync.enable
    hoodie.datasource.hive_sync.filter_pushdown_enabled
    hoodie.datasource.hive_sync.filter_pushdown_max_size hoodie.datasource.hive_sync.ignore_exceptions
    hoodie.datasource.hive_sync.jdbcurl hoodie.datasource.hive_sync.metastore.uris
    hoodie.datasource.hive_sync.mode hoodie.datasource.hive_sync.omit_metadata_fields
    hoodie.datasource.hive_sync.partition_extractor_class hoodie.datasource.hive_sync.partition_fields
    hoodie.datasource.hive_sync.password hoodie.datasource.hive_sync.recreate_table_on_error
    hoodie.datasource.hive_sync.schema_string_length_thresh hoodie.datasource.hive_sync.serde_properties
    hoodie.datasource.hive_sync.skip_ro_suffix hoodie.datasource.hive_sync.support_timestamp
    hoodie.datasource.hive_sync.sync_as_datasource hoodie.datasource.hive_sync.sync_comment
    hoodie.datasource.hive_sync.table hoodie.datasource.hive_sync.table.strategy
    hoodie.datasource.hive_sync.table_properties hoodie.datasource.hive_sync.use_jdbc
    hoodie.datasource.hive_sync.use_pre_apache_input_format hoodie.datasource.hive_sync.username
    hoodie.datasource.merge.type hoodie.datasource.meta.sync.base.path
    hoodie.datasource.meta.sync.enable hoodie.datasource.meta_sync.condition.sync
    hoodie.datasource.overwrite.mode hoodie.datasource.read.create.filesystem.relation
    hoodie.datasource.read.extract.partition.values.from.path
    hoodie.datasource.read.file.index.listing.mode
    hoodie.datasource.read.file.index.listing.partition-path-prefix.analysis.enabled
    hoodie.datasource.read.incr.fallback.fulltablescan.enable hoodie.datasource.read.incr.filters
    hoodie.datasource.read.incr.path.glob hoodie.datasource.read.incr.skip_cluster
    hoodie.datasource.read.incr.skip_compact hoodie.datasource.read.incr.table.version
    hoodie.datasource.read.schema.use.end.instanttime hoodie.datasource.read.streaming.table.version
    hoodie.datasource.read.table.valued.function.filesystem.relation.subpath
    hoodie.datasource.read.table.valued.function.timeline.relation
    hoodie.datasource.read.table.valued.function.timeline.relation.archived
    hoodie.datasource.streaming.startoffset hoodie.datasource.write.row.writer.enable
    hoodie.datasource.write.secondarykey.column hoodie.datasource.write.streaming.checkpoint.identifier
    hoodie.datasource.write.streaming.disable.compaction
    hoodie.datasource.write.streaming.ignore.failed.batch hoodie.datasource.write.streaming.retry.count
    hoodie.datasource.write.streaming.retry.interval.ms hoodie.embed.timeline.server
    hoodie.embed.timeline.server.async hoodie.embed.timeline.server.gzip
    hoodie.embed.timeline.server.port hoodie.embed.timeline.server.reuse.enabled
    hoodie.embed.timeline.server.threads hoodie.enable.data.skipping hoodie.errortable.base.path
    hoodie.errortable.enable hoodie.errortable.insert.shuffle.parallelism
    hoodie.errortable.source.rdd.persist hoodie.errortable.target.table.name
    hoodie.errortable.upsert.shuffle.parallelism hoodie.errortable.validate.recordcreation.enable
    hoodie.errortable.validate.targetschema.enable hoodie.errortable.write.class
    hoodie.errortable.write.failure.strategy hoodie.errortable.write.union.enable
    hoodie.expression.index.function hoodie.expression.index.type
    hoodie.fail.job.on.duplicate.data.file.detection hoodie.fail.on.timeline.archiving
    hoodie.fail.writes.on.inline.table.service.exception hoodie.file.group.reader.enabled
    hoodie.file.index.cache.spillable.mem hoodie.file.index.cache.use.spillable.map
    hoodie.file.index.enable hoodie.file.listing.parallelism hoodie.fileid.prefix.provider.class
    hoodie.filesystem.operation.retry.enable hoodie.filesystem.operation.retry.exceptions
    hoodie.filesystem.operation.retry.initial_interval_ms
    hoodie.filesystem.operation.retry.max_interval_ms hoodie.filesystem.operation.retry.max_numbers
    hoodie.filesystem.remote.backup.view.enable hoodie.filesystem.view.incr.timeline.sync.enable
    hoodie.filesystem.view.remote.host hoodie.filesystem.view.remote.port
    hoodie.filesystem.view.remote.retry.enable hoodie.filesystem.view.remote.retry.exceptions
    hoodie.filesystem.view.remote.retry.initial_interval_ms
    hoodie.filesystem.view.remote.retry.max_interval_ms hoodie.filesystem.view.remote.retry.max_numbers
    hoodie.filesystem.view.remote.timeout.secs hoodie.filesystem.view.rocksdb.base.path
    hoodie.filesystem.view.secondary.type
    hoodie.filesystem.view.spillable.bootstrap.base.file.mem.fraction
    hoodie.filesystem.view.spillable.clustering.mem.fraction
    hoodie.filesystem.view.spillable.compaction.mem.fraction hoodie.filesystem.view.spillable.dir
    hoodie.filesystem.view.spillable.log.compaction.mem.fraction hoodie.filesystem.view.spillable.mem
    hoodie.filesystem.view.spillable.replaced.mem.fraction hoodie.filesystem.view.type
    hoodie.finalize.write.parallelism hoodie.fs.atomic_creation.support
    hoodie.global.index.reconcile.parallelism hoodie.global.simple.index.parallelism
    hoodie.hfile.block.cache.enabled hoodie.hfile.block.cache.size hoodie.hfile.block.cache.ttl.minutes
    hoodie.hfile.block.size hoodie.hfile.compression.algorithm hoodie.hfile.max.file.size
    hoodie.index.bloom.fpp hoodie.index.bloom.num_entries hoodie.index.bucket.engine hoodie.index.class
    hoodie.index.name hoodie.internal.schema hoodie.io.factory.class hoodie.keep.max.commits
    hoodie.keep.min.commits hoodie.keygen.datetime.parser.class hoodie.keygen.timebased.input.dateformat
    hoodie.keygen.timebased.input.dateformat.list.delimiter.regex hoodie.keygen.timebased.input.timezone
    hoodie.keygen.timebased.output.dateformat hoodie.keygen.timebased.output.timezone
    hoodie.keygen.timebased.timestamp.scalar.time.unit hoodie.keygen.timebased.timestamp.type
    hoodie.keygen.timebased.timezone hoodie.layout.optimize.build.curve.sample.size
    hoodie.layout.optimize.curve.build.method hoodie.layout.optimize.data.skipping.enable
    hoodie.layout.optimize.enable hoodie.layout.optimize.strategy hoodie.log.compaction.blocks.threshold
    hoodie.log.compaction.enable hoodie.log.compaction.inline hoodie.logfile.data.block.format
    hoodie.logfile.data.block.max.size hoodie.logfile.max.size
    hoodie.logfile.to.parquet.compression.ratio hoodie.markers.delete.parallelism
    hoodie.markers.timeline_server_based.batch.interval_ms
    hoodie.markers.timeline_server_based.batch.num_threads hoodie.memory.compaction.fraction
    hoodie.memory.compaction.max.size hoodie.memory.dfs.buffer.max.size hoodie.memory.merge.fraction
    hoodie.memory.merge.max.size hoodie.memory.spillable.map.path
    hoodie.memory.writestatus.failure.fraction hoodie.merge.data.validation.enabled
    hoodie.merge.small.file.group.candidates.limit hoodie.merge.use.record.positions
    hoodie.meta.sync.client.tool.class hoodie.meta.sync.decode_partition hoodie.meta.sync.incremental
    hoodie.meta.sync.metadata_file_listing hoodie.meta.sync.no_partition_metadata
    hoodie.meta.sync.sync_snapshot_with_table_name hoodie.meta_sync.global.replicate.timestamp
    hoodie.meta_sync.spark.version hoodie.metadata.auto.initialize
    hoodie.metadata.bloom.filter.dynamic.max.entries hoodie.metadata.bloom.filter.enable
    hoodie.metadata.bloom.filter.fpp hoodie.metadata.bloom.filter.num.entries
    hoodie.metadata.bloom.filter.type hoodie.metadata.compact.max.delta.commits
    hoodie.metadata.dir.filter.regex hoodie.metadata.fallback.enable
    hoodie.metadata.file.cache.max.size.mb hoodie.metadata.global.record.level.index.enable
    hoodie.metadata.global.record.level.index.max.filegroup.count
    hoodie.metadata.global.record.level.index.min.filegroup.count hoodie.metadata.index.async
    hoodie.metadata.index.bloom.filter.column.list hoodie.metadata.index.bloom.filter.enable
    hoodie.metadata.index.bloom.filter.file.group.count hoodie.metadata.index.bloom.filter.parallelism
    hoodie.metadata.index.check.timeout.seconds hoodie.metadata.index.column.stats.column.list
    hoodie.metadata.index.column.stats.enable hoodie.metadata.index.column.stats.file.group.count
    hoodie.metadata.index.column.stats.inmemory.projection.threshold
    hoodie.metadata.index.column.stats.max.columns.to.index
    hoodie.metadata.index.column.stats.parallelism
    hoodie.metadata.index.column.stats.processing.mode.override hoodie.metadata.index.drop
    hoodie.metadata.index.expression.column hoodie.metadata.index.expression.enable
    hoodie.metadata.index.expression.file.group.count hoodie.metadata.index.expression.options
    hoodie.metadata.index.expression.parallelism hoodie.metadata.index.partition.stats.enable
    hoodie.metadata.index.partition.stats.file.group.count
    hoodie.metadata.index.partition.stats.parallelism hoodie.metadata.index.secondary.column
    hoodie.metadata.index.secondary.enable hoodie.metadata.index.secondary.parallelism
    hoodie.metadata.log.compaction.blocks.threshold hoodie.metadata.log.compaction.enable
    hoodie.metadata.max.deltacommits.when_pending hoodie.metadata.max.init.parallelism
    hoodie.metadata.max.logfile.size hoodie.metadata.max.reader.buffer.size
    hoodie.metadata.max.reader.memory hoodie.metadata.metrics.enable
    hoodie.metadata.optimized.log.blocks.scan.enable
    hoodie.metadata.partitioned.record.index.max.filegroup.count
    hoodie.metadata.partitioned.record.index.min.filegroup.count
    hoodie.metadata.range.repartition.random.seed hoodie.metadata.range.repartition.sampling.fraction
    hoodie.metadata.range.repartition.target.records.per.partition hoodie.metadata.record.index.enable
    hoodie.metadata.record.index.growth.factor hoodie.metadata.record.index.max.filegroup.count
    hoodie.metadata.record.index.max.filegroup.size hoodie.metadata.record.index.min.filegroup.count
    hoodie.metadata.record.level.index.enable hoodie.metadata.record.level.index.max.filegroup.count
    hoodie.metadata.record.level.index.min.filegroup.count
    hoodie.metadata.record.preparation.parallelism hoodie.metadata.repartition.default.partitions
    hoodie.metadata.repartition.min.partitions.threshold hoodie.metadata.spillable.map.path
    hoodie.metadata.streaming.write.datatable.write.statuses.coalesce.divisor
    hoodie.metadata.streaming.write.enabled hoodie.metaserver.connect.retries
    hoodie.metaserver.connect.retry.delay hoodie.metaserver.enabled hoodie.metaserver.uris
    hoodie.metrics.cloudwatch.maxdatumsperrequest hoodie.metrics.cloudwatch.metric.prefix
    hoodie.metrics.cloudwatch.namespace hoodie.metrics.cloudwatch.report.period.seconds
    hoodie.metrics.configs.properties hoodie.metrics.datadog.api.key
    hoodie.metrics.datadog.api.key.skip.validation hoodie.metrics.datadog.api.key.supplier
    hoodie.metrics.datadog.api.site hoodie.metrics.datadog.api.timeout.seconds
    hoodie.metrics.datadog.metric.host hoodie.metrics.datadog.metric.prefix
    hoodie.metrics.datadog.metric.tags hoodie.metrics.datadog.report.period.seconds
    hoodie.metrics.executor.enable hoodie.metrics.graphite.host hoodie.metrics.graphite.metric.prefix
    hoodie.metrics.graphite.port hoodie.metrics.graphite.report.period.seconds hoodie.metrics.jmx.host
    hoodie.metrics.jmx.port hoodie.metrics.lock.enable hoodie.metrics.m3.env hoodie.metrics.m3.host
    hoodie.metrics.m3.port hoodie.metrics.m3.service hoodie.metrics.m3.tags hoodie.metrics.on
    hoodie.metrics.prometheus.port hoodie.metrics.pushgateway.delete.on.shutdown
    hoodie.metrics.pushgateway.host hoodie.metrics.pushgateway.job.name hoodie.metrics.pushgateway.port
    hoodie.metrics.pushgateway.random.job.name.suffix hoodie.metrics.pushgateway.report.labels
    hoodie.metrics.pushgateway.report.period.seconds hoodie.metrics.reporter.class
    hoodie.metrics.reporter.metricsname.prefix hoodie.metrics.reporter.type
    hoodie.metricscompaction.log.blocks.on hoodie.optimistic.consistency.guard.sleep_time_ms
    hoodie.optimized.log.blocks.scan.enable hoodie.orc.block.size hoodie.orc.compression.codec
    hoodie.orc.max.file.size hoodie.orc.stripe.size hoodie.parquet.bloom.filter.enabled
    hoodie.parquet.field_id.write.enabled hoodie.parquet.flink.rowdata.write.support.class
    hoodie.parquet.spark.row.write.support.class hoodie.parquet.write.utc-timezone.enabled
    hoodie.partition.metafile.use.base.format hoodie.partition.ttl.management.strategy.type
    hoodie.partition.ttl.strategy.class hoodie.partition.ttl.strategy.days.retain
    hoodie.partition.ttl.strategy.max.delete.partitions hoodie.partition.ttl.strategy.partition.selected
    hoodie.payload.event.time.field hoodie.precommit.validators.equality.sql.queries
    hoodie.precommit.validators.inequality.sql.queries
    hoodie.precommit.validators.single.value.sql.queries hoodie.query.as.ro.table
    hoodie.read.timeline.holes.resolution.policy hoodie.record.index.input.storage.level
    hoodie.record.index.update.partition.path hoodie.record.index.use.caching
    hoodie.record.size.estimation.threshold hoodie.record.size.estimator.average.metadata.size
    hoodie.record.size.estimator.class hoodie.release.resource.on.completion.enable
    hoodie.rollback.instant.backup.dir hoodie.rollback.instant.backup.enabled
    hoodie.rollback.parallelism hoodie.sensitive.config.keys hoodie.simple.index.input.storage.level
    hoodie.simple.index.parallelism hoodie.simple.index.update.partition.path
    hoodie.simple.index.use.caching hoodie.skip.default.partition.validation
    hoodie.spark.polaris.catalog.class hoodie.spark.sql.insert.into.operation
    hoodie.spark.sql.merge.into.partial.updates hoodie.spark.sql.optimized.writes.enable
    hoodie.sql.bulk.insert.enable hoodie.sql.insert.mode hoodie.static.overwrite.partition.paths
    hoodie.storage.class hoodie.storage.layout.partitioner.class hoodie.storage.layout.type
    hoodie.table.cdc.supplemental.logging.mode hoodie.table.checksum hoodie.table.create.schema
    hoodie.table.index.defs.path hoodie.table.initial.version hoodie.table.log.file.format
    hoodie.table.metadata.partitions hoodie.table.metadata.partitions.inflight
    hoodie.table.rt.file.format hoodie.table.secondary.indexes.metadata
    hoodie.table.service.manager.actions hoodie.table.service.manager.connection.retries
    hoodie.table.service.manager.connection.retry.delay.sec
    hoodie.table.service.manager.connection.timeout.sec hoodie.table.service.manager.deploy.extra.params
    hoodie.table.service.manager.deploy.parallelism hoodie.table.service.manager.deploy.queue
    hoodie.table.service.manager.deploy.resources hoodie.table.service.manager.deploy.username
    hoodie.table.service.manager.enabled hoodie.table.service.manager.execution.engine
    hoodie.table.service.manager.uris hoodie.table.services.enabled
    hoodie.table.services.incremental.enabled hoodie.table.version
    hoodie.time.generator.type
    hoodie.timeline.compaction.batch.size hoodie.timeline.history.path hoodie.timeline.layout.version
    hoodie.timeline.path hoodie.write.auto.upgrade hoodie.write.buffer.limit.bytes
    hoodie.write.buffer.record.cache.limit hoodie.write.buffer.record.sampling.rate
    hoodie.write.commit.callback.class hoodie.write.commit.callback.http.api.key
    hoodie.write.commit.callback.http.custom.headers hoodie.write.commit.callback.http.timeout.seconds
    hoodie.write.commit.callback.http.url hoodie.write.complex.keygen.validation.enable
    hoodie.write.concat.handle.class hoodie.write.concurrency.async.conflict.detector.initial_delay_ms
    hoodie.write.concurrency.async.conflict.detector.period_ms
    hoodie.write.concurrency.early.conflict.check.commit.conflict
    hoodie.write.concurrency.early.conflict.detection.strategy
    hoodie.write.concurrency.schema.conflict.resolution.enable
    hoodie.write.executor.disruptor.buffer.limit.bytes hoodie.write.executor.disruptor.wait.strategy
    hoodie.write.executor.type hoodie.write.lock.client.num_retries
    hoodie.write.lock.client.wait_time_ms_between_retry
    hoodie.write.lock.heartbeat_interval_ms hoodie.write.lock.hivemetastore.database
    hoodie.write.lock.hivemetastore.table hoodie.write.lock.hivemetastore.uris
    hoodie.write.lock.max_wait_time_ms_between_retry hoodie.write.lock.num_retries
    hoodie.write.lock.storage.heartbeat.poll.secs hoodie.write.lock.wait_time_ms_between_retry
    hoodie.write.markers.type hoodie.write.merge.handle.class
    hoodie.write.merge.handle.fallback
    hoodie.write.partial.update.unavailable.value hoodie.write.record.positions
    hoodie.write.status.storage.level hoodie.write.tagged.record.storage.level
    hoodie.write.track.event.time.watermark hoodie.writestatus.class
    """.split()
)
