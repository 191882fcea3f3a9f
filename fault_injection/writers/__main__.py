"""``python -m fault_injection.writers``: a race of real processes, some killed, and what is wrong then."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from fault_injection.counted import counted
from fault_injection.writers.race import Race
from fault_injection.writers.venue import LOCKS, STORES, venue


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fault_injection.writers", description=__doc__)
    parser.add_argument("--store", choices=STORES, default="disk", help="where the table is")
    parser.add_argument("--lock", choices=LOCKS, default="storage", help="what all writers share")
    parser.add_argument("--writers", type=int, default=16, help="so many processes without Spark")
    parser.add_argument("--spark-drivers", type=int, default=0, help="so many drivers of Spark beside them")
    parser.add_argument("--hudi-drivers", type=int, default=0, help="so many drivers of the real Hudi, too")
    parser.add_argument("--commits", type=int, default=10, help="so many writes of each are acknowledged")
    parser.add_argument("--driver-commits", type=int, help="so many of each driver, if not as many")
    parser.add_argument("--kills", type=int, default=8, help="so many of their processes are killed")
    parser.add_argument("--seed", type=int, default=0, help="by which the killed ones are drawn")
    parser.add_argument("--minutes", type=float, default=60, help="who has not ended after so long hangs")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave table and logs there")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        kept = given.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkrobust-race-"))
        folder = Path(kept).resolve()
        place = stack.enter_context(venue(given.store, given.lock, folder))
        race = Race(
            url=place.url, folder=folder / "logs", writers=given.writers, spark_drivers=given.spark_drivers,
            hudi_drivers=given.hudi_drivers, commits=given.commits, driver_commits=given.driver_commits,
            kills=given.kills, seed=given.seed, options=place.options, patience_seconds=60 * given.minutes,
        )  # fmt: skip
        race.run()
        told = race.told()
        print(f"told     {counted(told)}")
        print(f"killed   {len(race.killed)}  ({' '.join(race.killed)})")
        print(f"seconds  {race.seconds:,.0f}  ({told['committed'] / race.seconds:.2f} commits per second)")
        race.tidy()
        problems = race.problems(place.copy(folder / "copy"))
        problems += [f"an upload that was left: {name}" for name in place.uploads()]
    print(f"problems {len(problems)}")
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
