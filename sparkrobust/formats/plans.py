"""The plans that a requested replacecommit or clustering carries."""

from __future__ import annotations

from sparkrobust.formats import avro

_RECORD = "HoodieRequestedReplaceMetadata"


def empty_replace_request() -> bytes:
    """What Hudi writes as the request of an insert overwrite: nothing is planned ahead."""
    return avro.encode(
        _RECORD, {"operationType": None, "clusteringPlan": None, "extraMetadata": {}, "version": 1}
    )


def clustered_file_ids(data: bytes, *, path: str) -> list[str]:
    """The file groups that a clustering plan is to replace."""
    record = avro.decode(data, _RECORD, path=path)
    plan = (record or {}).get("clusteringPlan") or {}
    return [
        piece["fileId"]
        for group in plan.get("inputGroups") or ()
        for piece in group.get("slices") or ()
        if piece.get("fileId")
    ]
