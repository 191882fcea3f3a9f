"""What the Makefile runs.  Standard library only: these scripts prepare the machine."""
