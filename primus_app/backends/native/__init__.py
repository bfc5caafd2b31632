"""What both engines share of backend.native: options checked by name, type and effect before the launch. Imports no torch."""
