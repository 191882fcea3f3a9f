"""Faults, injected: a simulated world in which the real protocol runs, and every answer may be lost."""
