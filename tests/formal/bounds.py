"""How much of the model is checked: configurations of ``formal/Onceonly.tla``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onceonly_proof.tla import Checked, check, formal


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How large the model's world is."""

    epochs: int
    faults: int
    drivers: int
    sinks: int = 2
    slots: int = 1

    def config(self, *, mutant: str = "", lively: bool = False, instead: str = "") -> str:
        """Return ``Small.cfg`` with other numbers, and with another law in place of all of them.

        A search for what must come to pass knows no symmetry, nor does a counterexample that people read.
        """
        given = {
            "LastEpoch": str(self.epochs),
            "FaultsMax": str(self.faults),
            "Drivers": f"{{{', '.join(str(each + 1) for each in range(self.drivers))}}}",
            "Sinks": f"{{{', '.join('ab'[: self.sinks])}}}",
            "SlotsMax": str(self.slots),
            "Mutant": f'"{mutant}"',
        }
        text = (formal() / "Small.cfg").read_text(encoding="utf-8")
        for name, value in given.items():
            text, found = re.subn(rf"(?m)^    {name} = .*$", f"    {name} = {value}", text)
            assert found == 1, name
        if lively or mutant:
            text = text.replace("SYMMETRY Alike\n", "")
        if instead:
            text = text.partition("INVARIANTS")[0] + f"INVARIANT {instead}\n"
        return text + "PROPERTY Settles\n" if lively else text

    def check(
        self,
        *,
        mutant: str = "",
        lively: bool = False,
        instead: str = "",
        workers: int = 2,
        timeout_s: float = 580.0,
    ) -> Checked:
        """Let TLC search it."""
        config = self.config(mutant=mutant, lively=lively, instead=instead)
        return check("Onceonly", config, workers=workers, timeout_s=timeout_s)
