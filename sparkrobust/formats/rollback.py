"""The plan and the record of a rollback, as Hudi 1.1 writes them.

A rollback of a failed write by its begin markers plans one request per marked file: the file's
partition, its file group, and the file's full path.  Its record names, by partition, what was
deleted.  Which files those are, and deleting them, is the coordinator's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkrobust.errors import CorruptTableError
from sparkrobust.formats import avro

PLAN_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class InstantInfo:
    """The instant that is rolled back: its time, and its action's word."""

    commit_time: str
    action: str


@dataclass(frozen=True, kw_only=True)
class RollbackRequest:
    """Files of one file group that are to go; paths are absolute."""

    partition_path: str
    file_id: str | None = None
    latest_base_instant: str | None = None
    files_to_be_deleted: tuple[str, ...] = ()
    log_blocks_to_be_deleted: Mapping[str, int] | None = field(default_factory=dict)

    @classmethod
    def of_marked_file(
        cls, *, partition_path: str, file_id: str, absolute_path: str, instant: str
    ) -> RollbackRequest:
        """The request that Hudi plans for one begin marker of the failed ``instant``."""
        return cls(
            partition_path=partition_path,
            file_id=file_id,
            latest_base_instant=instant,
            files_to_be_deleted=(absolute_path,),
        )


@dataclass(frozen=True, kw_only=True)
class RollbackPlan:
    """``.rollback.requested``: what a rollback is going to do."""

    instant_to_rollback: InstantInfo
    rollback_requests: tuple[RollbackRequest, ...] = ()
    version: int | None = PLAN_VERSION

    def to_bytes(self) -> bytes:
        """The content of the file on the timeline."""
        requests = [
            {
                "partitionPath": request.partition_path,
                "fileId": request.file_id,
                "latestBaseInstant": request.latest_base_instant,
                "filesToBeDeleted": list(request.files_to_be_deleted),
                "logBlocksToBeDeleted": _as_dict(request.log_blocks_to_be_deleted),
            }
            for request in self.rollback_requests
        ]
        record = {
            "instantToRollback": _instant_to_record(self.instant_to_rollback),
            "RollbackRequests": requests,
            "version": self.version,
        }
        return avro.encode("HoodieRollbackPlan", record)

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> RollbackPlan:
        """Read a plan; a rollback without one can't be carried out, so an empty file is corrupt."""
        record = avro.decode(data, "HoodieRollbackPlan", path=path)
        if record is None or record["instantToRollback"] is None:
            raise CorruptTableError(f"{path}: expected a rollback plan that names its instant", path=path)
        return cls(
            instant_to_rollback=_instant_from_record(record["instantToRollback"]),
            rollback_requests=tuple(
                RollbackRequest(
                    partition_path=request["partitionPath"],
                    file_id=request["fileId"],
                    latest_base_instant=request["latestBaseInstant"],
                    files_to_be_deleted=tuple(request["filesToBeDeleted"]),
                    log_blocks_to_be_deleted=request["logBlocksToBeDeleted"],
                )
                for request in record["RollbackRequests"] or ()
            ),
            version=record["version"],
        )


@dataclass(frozen=True, kw_only=True)
class RollbackPartition:
    """What a rollback deleted in one partition, and what it could not; paths are absolute."""

    partition_path: str
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] | None = field(default_factory=dict)
    log_files_from_failed_commit: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RollbackMetadata:
    """``.rollback``: what a rollback did."""

    start_rollback_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    commits_rollback: tuple[str, ...]
    partition_metadata: Mapping[str, RollbackPartition] = field(default_factory=dict)
    version: int | None = PLAN_VERSION
    instants_rollback: tuple[InstantInfo, ...] = ()

    @classmethod
    def of_plan(
        cls,
        plan: RollbackPlan,
        *,
        rollback_instant: str,
        time_taken_in_millis: int,
        failed: Collection[str] = frozenset(),
    ) -> RollbackMetadata:
        """The record of a plan that was carried out, but for the files in ``failed``."""
        partitions = {
            partition: _partition_done(partition, plan.rollback_requests, failed)
            for partition in dict.fromkeys(request.partition_path for request in plan.rollback_requests)
        }
        return cls(
            start_rollback_time=rollback_instant,
            time_taken_in_millis=time_taken_in_millis,
            total_files_deleted=sum(len(done.success_delete_files) for done in partitions.values()),
            commits_rollback=(plan.instant_to_rollback.commit_time,),
            partition_metadata=partitions,
            instants_rollback=(plan.instant_to_rollback,),
        )

    def to_bytes(self) -> bytes:
        """The content of the file on the timeline."""
        partitions = {
            partition: {
                "partitionPath": done.partition_path,
                "successDeleteFiles": list(done.success_delete_files),
                "failedDeleteFiles": list(done.failed_delete_files),
                "rollbackLogFiles": _as_dict(done.rollback_log_files),
                "logFilesFromFailedCommit": _as_dict(done.log_files_from_failed_commit),
            }
            for partition, done in self.partition_metadata.items()
        }
        record = {
            "startRollbackTime": self.start_rollback_time,
            "timeTakenInMillis": self.time_taken_in_millis,
            "totalFilesDeleted": self.total_files_deleted,
            "commitsRollback": list(self.commits_rollback),
            "partitionMetadata": partitions,
            "version": self.version,
            "instantsRollback": [_instant_to_record(info) for info in self.instants_rollback],
        }
        return avro.encode("HoodieRollbackMetadata", record)

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> RollbackMetadata:
        """Read the record of a rollback."""
        record = avro.decode(data, "HoodieRollbackMetadata", path=path)
        if record is None:
            raise CorruptTableError(f"{path}: expected the record of a rollback, found nothing", path=path)
        return cls(
            start_rollback_time=record["startRollbackTime"],
            time_taken_in_millis=record["timeTakenInMillis"],
            total_files_deleted=record["totalFilesDeleted"],
            commits_rollback=tuple(record["commitsRollback"]),
            partition_metadata={
                partition: RollbackPartition(
                    partition_path=done["partitionPath"],
                    success_delete_files=tuple(done["successDeleteFiles"]),
                    failed_delete_files=tuple(done["failedDeleteFiles"]),
                    rollback_log_files=done["rollbackLogFiles"],
                    log_files_from_failed_commit=done["logFilesFromFailedCommit"],
                )
                for partition, done in record["partitionMetadata"].items()
            },
            version=record["version"],
            instants_rollback=tuple(_instant_from_record(info) for info in record["instantsRollback"]),
        )


def _partition_done(
    partition: str, requests: Iterable[RollbackRequest], failed: Collection[str]
) -> RollbackPartition:
    files = [
        file
        for request in requests
        if request.partition_path == partition
        for file in request.files_to_be_deleted
    ]
    return RollbackPartition(
        partition_path=partition,
        success_delete_files=tuple(file for file in files if file not in failed),
        failed_delete_files=tuple(file for file in files if file in failed),
    )


def _as_dict(values: Mapping[str, int] | None) -> dict[str, int] | None:
    return None if values is None else dict(values)


def _instant_to_record(info: InstantInfo) -> dict[str, str]:
    return {"commitTime": info.commit_time, "action": info.action}


def _instant_from_record(record: Mapping[str, Any]) -> InstantInfo:
    return InstantInfo(commit_time=record["commitTime"], action=record["action"])
