"""Plans of table services that we can't make yet, as Hudi's writers put them on the timeline."""

from __future__ import annotations

from typing import Any

from sparkrobust.core.conflicts import FileGroup
from sparkrobust.core.instant import Action
from sparkrobust.core.names import REMOVABLE
from sparkrobust.formats import avro
from sparkrobust.formats.plans import COMPACTION_PLAN, REPLACE_PLAN


def plan_of(action: Action, group: FileGroup, *, removable: bool = False) -> bytes:
    """The plan of a clustering or a compaction of one file group."""
    partition, file_id = group
    if action is not Action.CLUSTERING:
        operation: dict[str, Any] = {"baseInstantTime": None, "deltaFilePaths": [], "dataFilePath": None}
        operation |= {"fileId": file_id, "partitionPath": partition, "metrics": None}
        record: dict[str, Any] = {"operations": [operation | {"bootstrapFilePath": None}], "version": 2}
        record |= {"extraMetadata": None, "strategy": None, "preserveHoodieMetadata": False}
        return avro.encode(COMPACTION_PLAN, record | {"missingSchedulePartitions": None})
    piece: dict[str, Any] = {"dataFilePath": None, "deltaFilePaths": [], "fileId": file_id, "version": 1}
    piece |= {"partitionPath": partition, "bootstrapFilePath": ""}
    part = {"slices": [piece], "metrics": None, "numOutputFileGroups": 1, "extraMetadata": None, "version": 1}
    plan: dict[str, Any] = {"inputGroups": [part], "strategy": None, "extraMetadata": {}, "version": 1}
    plan |= {"preserveHoodieMetadata": True, "missingSchedulePartitions": None}
    extra = {REMOVABLE: "true"} if removable else {}
    whole = {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": extra, "version": 1}
    return avro.encode(REPLACE_PLAN, whole)
