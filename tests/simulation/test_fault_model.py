"""The fault model that users read is the one that the simulated world injects."""

from __future__ import annotations

import pytest

from fault_injection.faults import FAULTS, Fault, Verdict
from fault_injection.simulation.scenarios import SCENARIOS
from sparkrobust.core.guarantees import MODES, Promise, guarantees_of
from sparkrobust.storage.contract import Staging


def test_every_fault_that_is_injected_and_every_story_stands_in_the_model() -> None:
    shown = {name for fault in FAULTS for name in fault.simulated}
    injected = {fault.value for fault in Fault if fault is not Fault.NONE}
    assert injected | set(SCENARIOS) - {"any"} <= shown
    assert {name.partition(":")[0] for name in shown} <= injected | set(SCENARIOS)


def test_nothing_is_promised_of_what_is_out_of_scope_and_something_of_all_else() -> None:
    assert {fault.verdict for fault in FAULTS} == set(Verdict)
    assert all(not fault.simulated for fault in FAULTS if fault.verdict is Verdict.OUT_OF_SCOPE)


def test_of_mode_direct_less_is_promised() -> None:
    on_a_disk = guarantees_of("direct", "/t", folders=True).promises
    elsewhere = guarantees_of("direct", "s3a://b/t").promises
    assert set(on_a_disk) == set(Promise) - {Promise.NOTHING_SPURIOUS, Promise.NO_ZOMBIE}
    assert elsewhere == (Promise.HONEST_OUTCOME,)


@pytest.mark.parametrize("staging", Staging)
def test_every_way_of_staging_has_its_guarantees(staging: Staging) -> None:
    found = guarantees_of(staging.value, "s3a://bucket/<table>")
    assert found.mode in MODES and found.promises == tuple(Promise) and found.limits
    assert f"mode {staging.value}" in str(found) and found.limits[0] in str(found)
    assert "&lt;table&gt;" in found._repr_html_() and "<table>" not in found._repr_html_()
