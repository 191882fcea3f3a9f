"""The plans that requested table services and replacecommits carry."""

from __future__ import annotations

from sparkrobust.formats import avro

REPLACE_PLAN = "HoodieRequestedReplaceMetadata"
COMPACTION_PLAN = "HoodieCompactionPlan"


def empty_replace_request() -> bytes:
    """What Hudi writes as the request of an insert overwrite: nothing is planned ahead."""
    return avro.encode(
        REPLACE_PLAN, {"operationType": None, "clusteringPlan": None, "extraMetadata": {}, "version": 1}
    )


def clustered_groups(data: bytes, *, path: str) -> list[tuple[str, str]]:
    """Partition and id of the file groups that a clustering plan is to replace."""
    record = avro.decode(data, REPLACE_PLAN, path=path)
    plan = (record or {}).get("clusteringPlan") or {}
    return [
        (piece["partitionPath"] or "", piece["fileId"])
        for group in plan.get("inputGroups") or ()
        for piece in group.get("slices") or ()
        if piece.get("fileId")
    ]


def extra_metadata(data: bytes, record_name: str, *, path: str) -> dict[str, str]:
    """What its makers wanted a plan to say besides; a clustering has two places for it."""
    record = avro.decode(data, record_name, path=path) or {}
    inner = (record.get("clusteringPlan") or {}).get("extraMetadata") or {}
    return {**inner, **(record.get("extraMetadata") or {})}


def compacted_groups(data: bytes, *, path: str) -> list[tuple[str, str]]:
    """Partition and id of the file groups that a compaction plan is to merge, of whole files or of logs."""
    record = avro.decode(data, COMPACTION_PLAN, path=path)
    operations = (record or {}).get("operations") or ()
    return [(one["partitionPath"] or "", one["fileId"]) for one in operations if one.get("fileId")]
