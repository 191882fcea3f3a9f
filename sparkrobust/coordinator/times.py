"""Instant and completion times: taken from a clock, never twice, never going back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from sparkrobust.core.instant import InstantTime
from sparkrobust.core.table_config import TableConfig
from sparkrobust.world import Clock


def _text(moment: datetime) -> str:
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def next_time(clock: Clock, config: TableConfig, newest: str) -> InstantTime:
    """The time now in the table's zone, or the next one after ``newest`` if that is not over yet."""
    zone = timezone.utc if config.utc else None
    now = _text(datetime.fromtimestamp(clock.now_ms() / 1000, zone))
    if now > newest:
        return InstantTime(now)
    return InstantTime(_text(_moment(newest) + timedelta(milliseconds=1)))


def age_ms(clock: Clock, config: TableConfig, time: str) -> int:
    """How long ago an instant time was taken, at least: there are two moments for it when clocks go back."""
    zone = timezone.utc if config.utc else None
    moment = _moment(time).replace(tzinfo=zone)
    taken = max(moment.replace(fold=fold).timestamp() for fold in (0, 1))
    return max(0, clock.now_ms() - int(taken * 1000))


def _moment(time: str) -> datetime:
    """The moment of an instant time; one of seconds, as old writers made them, stands for its end."""
    padded = (time + "999" if len(time) == 14 else time)[:17]
    return datetime.strptime(padded[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(padded[14:17]))
